"""Every route answers with the document that the table names, with a real server and a real store."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints
from urllib.parse import quote

import httpx
import msgspec
import pytest
from jsonschema_rs import Draft202012Validator, meta
from schemathesis.specs.openapi.definitions import OPENAPI_31

from pausepoint import Context, workflow
from pausepoint.cli.documents import AccessTokenDocument, MirroredDocument, NoticeDocument
from pausepoint.integrations.firestore import Mirrored
from pausepoint.integrations.notify import Notice
from pausepoint.model.documents import document_name
from pausepoint.model.schemas import File
from pausepoint.model.sessions import QuestionStatus, Status, StatusName
from pausepoint.orchestrator import Orchestrator, Task, TaskAgent
from pausepoint.server import bodies
from pausepoint.server.calls import Route
from pausepoint.server.documents import FileDocument
from pausepoint.server.openapi import openapi, schemas, template
from pausepoint.server.routes import ROUTES
from pausepoint.server.tokens import CreatedToken
from tests.server.kit import Served, at_the_gate, brief, check_problem, fits, letter, served
from tests.support.loop import PATIENCE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("documents")) as found:
        yield found


class Caller:
    """Calls routes by name, checks their documents, and remembers which ones were called."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.called: set[str] = set()

    def __call__(self, name: str, body: Any = None, status: int | None = None, **more: Any) -> Any:
        method, path = name.split(" ")
        route = self._route(method, path.partition("?")[0])
        self.called.add(f"{route.method} {route.path}")
        given: dict[str, Any] = {} if body is None and route.body is None else {"json": body or {}}
        answer = self.client.request(method, path, **given, **more)
        assert answer.status_code == (status or route.status), answer.text
        if route.answer is None:
            return answer
        fits(answer.json(), document_name(route.answer.__name__))
        return answer.json()

    def _route(self, method: str, path: str) -> Route:
        def alike(route: Route) -> bool:
            wanted, given = route.path.split("/"), path.split("/")
            if "{path:path}" in wanted:
                return given[:4] == wanted[:2] + given[2:3] + ["artifacts"] and len(given) > 4
            pairs = zip(wanted, given, strict=True) if len(wanted) == len(given) else [("x", "y")]
            return all(one == other or one.startswith("{") for one, other in pairs)

        return next(route for route in ROUTES if route.method == method and alike(route))


@pytest.mark.long
def test_every_route_answers_with_its_document(tmp_path: Path) -> None:
    with served(tmp_path, workflows=(brief, letter, ship)) as server, server.admin(**{"X-Pausepoint": "1"}) as client:
        call = Caller(client)
        _sessions(call, server)
        _verbs(call, server)
        _files(call, server)
        _everything(call, server)
        _runs(call, server)
        _questions(call, server)
        others = {f"{route.method} {route.path}" for route in ROUTES if not route.streams}
        assert others - call.called == set()


def _sessions(call: Caller, server: Served) -> None:
    made = call("POST /sessions", {"workflow": "brief", "input": {"topic": "octopus"}, "session_id": "one"})
    assert made["session_id"] == "one"
    server.run(server.engine.session("one").outcome())
    assert call("GET /sessions?limit=1&count=1")["total"] == 1
    assert call("GET /now")["counts"] == {"brief": {"waiting": 1}}
    page = call("GET /sessions/one")
    assert (page["status"], page["description"]["name"]) == ("waiting", "brief")
    assert page["questions"][0]["next_question"] == "Which tone?"
    assert [each["step"] for each in call("GET /sessions/one/spans")["spans"]] == ["research", "choose"]
    totals = call("GET /sessions/one/totals")
    assert (totals["visits"], [each["name"] for each in totals["steps"]]) == (1, ["research"])
    assert call("GET /sessions/one/checkpoints")["checkpoints"][0]["name"] == "research#1"
    (written,) = call("GET /sessions/one/operations")["operations"]
    assert call(f"GET /sessions/one/operations/{quote(written['id'], safe='')}") == written
    turns = call("GET /sessions/one/conversation")["turns"]
    assert [(each["role"], each["text"], each["result"]) for each in turns] == [
        ("tool", "", "notes on octopus"), ("question", "Which tone?", None),
    ]  # fmt: skip
    assert call(f"GET /sessions/one/conversation?limit=1&before={turns[1]['seq']}")["turns"] == turns[:1]
    first = call("GET /sessions/one/events?limit=2")
    assert len(first["events"]) == 2
    rest = call(f"GET /sessions/one/events?after={first['next']}")["events"]
    assert not {each["cursor"] for each in rest} & {each["cursor"] for each in first["events"]}
    assert call("GET /sessions/one/state")["values"]["topic"] == "octopus"
    assert call("GET /sessions/one/state/notes?at=research%231")["value"] == "notes on octopus"
    assert [each["path"] for each in call("GET /sessions/one/diff?a=1")["changes"]] == ["notes"]
    assert call("GET /sessions/one/children")["sessions"] == []
    assert [each["session_id"] for each in call("GET /sessions/one/tree")["sessions"]] == ["one"]


def _verbs(call: Caller, server: Served) -> None:
    assert call("POST /sessions/one/pause", {"reason": "lunch"})["pause"]["reason"] == "lunch"
    assert call("GET /sessions?text=lunch")["sessions"][0]["session_id"] == "one"
    assert [each["verdict"] for each in call("GET /sessions/one/plan")["steps"]][:1] == ["done"]
    call("POST /sessions/one/plan", {"verb": "rewind", "to": "research"})
    call("POST /sessions/one/plan", {"verb": "edit", "fields": {"topic": "squid"}})
    assert call("GET /sessions/one/why/research")["verdict"] == "done"
    mark = call("GET /sessions/one")["etag"]
    edited = call("POST /sessions/one/edit", {"fields": {"topic": "squid"}}, headers={"If-Match": mark})
    assert edited["etag"] != mark
    forked = call("POST /sessions/one/fork", {"session_id": "two", "changes": {"topic": "crab"}})
    assert (forked["session_id"], forked["status"]) == ("two", "paused")
    assert call("GET /sessions/two")["origin"]["session_id"] == "one"
    call(
        "POST /sessions/one/rewind",
        {"to": "research", "changes": {"topic": "squid"}},
        headers={"If-Match": edited["etag"]},
    )
    assert call("POST /sessions/one/resume")["pause_requested"] is False
    server.run(server.engine.session("one").outcome())
    found = call("GET /inbox")["questions"]
    (question,) = [each for each in found if each["session_id"] == "one"]
    assert call(f"GET /inbox/{question['id']}")["context_json"]
    assert call(f"POST /inbox/{question['id']}/link", {"name": "Ann"})["question_id"] == question["id"]
    taken = call(f"POST /inbox/{question['id']}/answer", {"value": "formal", "seen": question["digest"]})
    assert taken["by"] == "root"
    assert server.run(server.engine.session("one").outcome()).state.text == "formal: notes on squid"
    call("POST /sessions/two/send", {"value": "hello", "key": "1"})
    many = call("POST /sessions/bulk", {"verb": "pause", "ids": ["one", "two", "nobody"]})
    assert [[each["session_id"] for each in many[name]] for name in ("done", "skipped", "refused")] == [
        ["two"], ["one"], ["nobody"],
    ]  # fmt: skip
    assert call("POST /sessions/bulk", {"verb": "cancel", "filter": {"workflow": "brief"}, "dry_run": True})["done"]
    assert call("POST /sessions/two/cancel")["status"] == "cancelled"
    for wrong in ({}, {"field": "notes", "seq": 3}):
        assert "one of 'field'" in check_problem(call.client.post("/sessions/one/redact", json=wrong), 400)["detail"]
    assert call("POST /sessions/one/redact", {"field": "notes", "reason": "personal"})["records"]


@workflow
async def ship(ctx: Context) -> None:
    await ctx.confirm("Go?")


def _questions(call: Caller, server: Served) -> None:
    async def declined() -> str:
        session = await server.engine.start(ship, session_id="ship")
        question = (await session.outcome()).questions[0]
        await session.answer("no")
        await session.outcome()
        return question.id

    assert call("POST /sessions/ship/ask_again", {"question_id": server.run(declined())})["status"] == "ready"


def _files(call: Caller, server: Served) -> None:
    made = call("POST /sessions/one/files?filename=notes.txt", content=b"hello", headers={"Content-Type": "text/plain"})
    assert call("GET /sessions/one/files")["files"][0]["filename"] == "notes.txt"
    assert call(f"GET /sessions/one/files/{made['file_id']}").content == b"hello"
    folder = server.folder / "letter"

    async def published() -> None:
        session = await server.engine.start(letter, session_id="three", folder=folder, topic="x")
        await session.outcome()

    server.run(published())
    (one,) = call("GET /sessions/three/artifacts")["artifacts"]
    assert (one["path"], one["state"]) == ("letter.html", "valid")
    (folder / "letter.html").write_text("<b>edited by hand, and long enough</b>\n")
    assert call("GET /sessions/three/artifacts/letter.html?version=recorded").text.startswith("<script>")
    assert call("POST /sessions/three/artifacts/restore", {"paths": ["letter.html"]})["changed"] == ["letter.html"]
    (folder / "letter.html").write_text("<b>edited by hand, and long enough</b>\n")
    call("POST /sessions/three/artifacts/adopt")


def _runs(call: Caller, server: Served) -> None:
    async def work(agent: TaskAgent) -> None:
        await agent.confirm("Go?")

    async def start() -> None:
        await Orchestrator(server.engine, "release", work).run([Task(id="a")])

    server.run(start())
    server.run(at_the_gate(server.engine))
    (agent,) = call("GET /agents")["agents"]
    assert (agent["session_id"], agent["status"], agent["agent"]["prompt"]) == ("claude-ada", "ready", "Fix it.")
    assert (agent["agent"]["branch"], agent["agent"]["terminal"]) == ("main", "pts/3")
    assert [each["phase"] for each in call("GET /runs")["runs"]] == ["running"]
    assert call("GET /runs/release")["questions"][0]["task"] == "a"
    assert call("POST /runs/release/pause", {"reason": "lunch"})["phase"] == "paused"
    assert call("POST /runs/release/resume")["phase"] == "running"


def _everything(call: Caller, server: Served) -> None:
    assert call("PUT /standing-pause", {"reason": "a wrong model"})["standing_pause"]["by"] == "root"
    assert call("PUT /standing-pause", {"reason": "twice is no error"})["standing_pause"]["reason"]
    assert call("GET /standing-pause")["standing_pause"]
    assert call("DELETE /standing-pause")["standing_pause"] is None
    call("PUT /schedules/morning", {"workflow": "brief", "cron": "0 7 * * 1-5", "input": {"topic": "owl"},
                                       "queue": "gpu", "priority": -5, "lane": "c7"})  # fmt: skip
    assert call("GET /schedules/morning")["schedule"]["input"] == {"topic": "owl"}
    assert call("POST /schedules/morning/pause")["schedule"]["paused_by"] == "root"
    assert call("POST /schedules/morning/resume")["schedule"]["next_at"]
    triggered = call("POST /schedules/morning/trigger")
    assert (triggered["session_id"].partition("@")[0], triggered["schedule"]["priority"]) == ("morning", -5)
    end = time.monotonic() + PATIENCE
    while not (found := call("GET /sessions?queue=gpu")["sessions"]):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert [(each["session_id"], each["lane"]) for each in found] == [(triggered["session_id"], "c7")]
    server.run(server.engine.session(triggered["session_id"]).outcome())  # it waits for an answer, so its slot is free
    assert [each["name"] for each in call("GET /schedules")["schedules"]] == ["morning"]
    assert call("DELETE /schedules/morning")["removed"] == "morning"
    assert call("PUT /limits/queue/gpu", {"most": 4})["limit"]["at_work"] == 0
    assert call("PUT /limits/workflow/brief", {"most": 9, "per_seconds": 1.5})["limit"]["per_seconds"] == 1.5
    assert [each["name"] for each in call("GET /limits")["limits"]] == ["gpu", "brief"]
    assert {"name": "gpu", "ready": 0, "at_work": 0} in call("GET /queues")["queues"]
    assert [call(f"DELETE /limits/{each}")["removed"] for each in ("queue/gpu", "workflow/brief")] == [1, 1]
    with server.admin() as client:
        check_problem(client.delete("/limits/queue/gpu"), 404)
        late = {"workflow": "brief", "cron": "0 7 * * *", "overlap": "queue", "catch_up": "none"}
        for path, body, why in (
            ("/limits/queue/gpu", {"most": 2, "per_seconds": 60, "by": "owner"}, "A limit per time counts all"),
            ("/limits/queue/gpu", {"most": None}, "to lift. List the limits"),
            ("/schedules/late", late, "The overlap 'queue' lets a run wait"),
        ):
            assert why in check_problem(client.put(path, json=body), 400, 422)["detail"]
        for name, text in (("acme%2Feu", "acme/eu"), ("%0Aa%0A", "\na\n")):
            assert client.put(f"/limits/lane/{name}", json={"most": 1}).json()["limit"]["name"] == text
            assert client.delete(f"/limits/lane/{name}").json()["removed"] == 1
        check_problem(client.put("/limits/lane/", json={"most": 1}), 400)
    assert {each["name"] for each in call("GET /workflows")["workflows"]} == {"brief", "letter", "ship"}
    assert call("GET /workflows/brief")["state"]["required"] == ["topic"]
    assert call("GET /store")["kind"] == "sqlite"
    assert call("GET /store/misfits")["misfits"] == []
    for begun in (call("POST /store/verify"), call("POST /store/gc")):
        end = time.monotonic() + PATIENCE
        while (job := call(f"GET /store/jobs/{begun['job']}"))["status"] == "running":
            assert time.monotonic() < end
            time.sleep(0.01)
        assert job["status"] == "done", job
    made = call("POST /store/tokens", {"role": "viewer"})
    assert [each["id"] for each in call("GET /store/tokens")["tokens"]] == [made["id"]]
    call(f"DELETE /store/tokens/{made['id']}", {})
    bundle = call("GET /sessions/one/export").content
    assert call("POST /imports?session_id=copy", content=bundle)["session_id"] == "copy"
    assert call("DELETE /sessions/one", {"reason": "asked to"})["by"] == "root"
    assert call.client.get("/sessions/one").json()["tombstone"]["reason"] == "asked to"
    assert b"pausepoint_sessions" in call("GET /metrics").content
    call("GET /health/live")
    call("GET /health/ready")
    assert call("GET /me")["role"] == "admin"
    assert call("POST /login", {"token": server.tokens.own})["name"] == "root"
    call("POST /logout")
    assert call("GET /openapi.json")["openapi"] == "3.1.0"


@pytest.mark.long
def test_the_description_names_every_route_and_every_schema_exists() -> None:
    found = openapi(ROUTES)
    assert {(path, method.upper()) for path, methods in found["paths"].items() for method in methods} == {
        (template(route.path), route.method) for route in ROUTES
    }
    known = found["components"]["schemas"]
    text = str(found)
    for name in {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in known, name
    for route in ROUTES:
        assert route.answer is None or document_name(route.answer.__name__) in known, route
        if route.body is not None:
            fits(route.example, route.body.__name__)
    ids = [each["operationId"] for methods in found["paths"].values() for each in methods.values()]
    assert len(ids) == len(set(ids))


def test_a_body_with_the_name_of_a_document_is_refused() -> None:
    class head(msgspec.Struct):
        """Named as a document is in the description."""

    with pytest.raises(ValueError, match="the same name: head"):
        schemas([*ROUTES, Route(method="POST", path="/x", role=None, handler=ROUTES[0].handler, body=head)])


@pytest.mark.parametrize(
    ("document", "record", "field"),
    [
        (AccessTokenDocument, CreatedToken, "role"),
        (FileDocument, File, "upload_status"),
        (MirroredDocument, Mirrored, "status"),
        (NoticeDocument, Notice, "status"),
    ],
)
def test_a_document_lists_the_values_that_its_record_has(document: type, record: type, field: str) -> None:
    """Their modules are too heavy to be imported for the sake of one type."""
    assert get_args(get_type_hints(document)[field]) == get_args(get_type_hints(record)[field]) != ()


def test_requests_take_every_status() -> None:
    assert get_args(StatusName) == tuple(Status)
    of_questions, _ = get_args(get_type_hints(bodies.Inbox)["status"])
    assert get_args(of_questions) == tuple(QuestionStatus)


def test_the_description_is_valid_openapi() -> None:
    rules = Draft202012Validator(OPENAPI_31)
    description = openapi(ROUTES)
    rules.validate(description)
    for path, methods in description["paths"].items():
        for operation in methods.values():
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"{([^}]*)}", path)), path
    for described in description["components"]["schemas"].values():  # which the rules above do not look into
        meta.validate(described)
    broken = description | {"paths": {"/x": {"get": {"parameters": [{"name": "x", "in": "body"}]}}}}
    assert not rules.is_valid(broken)


def test_a_large_field_has_an_address_of_its_own(server: Served) -> None:
    server.asked("large", "x" * 70_000)
    with server.admin() as client:
        found = client.get("/sessions/large/state").json()["values"]["topic"]
        assert found["large"] == 70_002
        assert client.get(server.base + found["href"]).json()["value"] == "x" * 70_000


def test_a_read_that_has_not_changed_is_a_304(server: Served) -> None:
    server.asked("cached")
    with server.admin() as client:
        first = client.get("/sessions/cached")
        again = client.get("/sessions/cached", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        client.post("/sessions/cached/pause", json={})
        now = client.get("/sessions/cached", headers={"If-None-Match": first.headers["etag"]})
        assert now.json()["status"] == "paused"


def test_pages_of_sessions_follow_each_other(server: Served) -> None:
    for number in range(3):
        server.asked(f"page-{number}", owner="pager")
    with server.admin() as client:
        seen, after = list[str](), list[Any]()
        for _ in range(3):
            more = {"after": after[-1]} if after else {}
            page = client.get("/sessions", params={"owner": "pager", "limit": "1"} | more)
            seen += [each["session_id"] for each in page.json()["sessions"]]
            after.append(page.json()["next"])
        assert (sorted(seen), after[-1]) == (["page-0", "page-1", "page-2"], None)
        assert client.get("/sessions?after=nonsense").status_code == 400
        assert client.get("/sessions?limit=201").status_code == 400
