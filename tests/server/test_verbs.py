"""Verbs over HTTP: conditions, refusals in the words of HTTP, and servers that drive nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pausepoint import Context, Status, workflow
from pausepoint.engine import Selection
from pausepoint.errors import VerbRefused
from pausepoint.integrations.words import names_code
from tests.server.kit import Served, brief, check_problem, fits, letter, served, state_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("verbs")) as found:
        yield found


def test_an_edit_needs_the_mark_of_what_was_read(server: Served) -> None:
    server.asked("edited")
    with server.admin() as client:
        change = {"fields": {"topic": "squid"}}
        check_problem(client.post("/sessions/edited/edit", json=change), 428)
        mark = client.get("/sessions/edited").headers["etag"]
        client.post("/sessions/edited/pause", json={"reason": "someone else was faster"})
        refused = client.post("/sessions/edited/edit", json=change, headers={"If-Match": mark})
        present = check_problem(refused, 412)["present"]
        assert present["pause"]["reason"] == "someone else was faster"
        assert refused.headers["etag"] == present["etag"]
        done = client.post("/sessions/edited/edit", json=change, headers={"If-Match": present["etag"]})
        assert done.status_code == 200
        assert client.get("/sessions/edited/state").json()["values"]["topic"] == "squid"
        events = client.get("/sessions/edited/events").json()["events"]
        assert any("edited by root" in each["summary"] for each in events)


def test_values_that_do_not_fit_are_named(server: Served) -> None:
    server.asked("unfit")
    with server.admin() as client:
        mark = client.get("/sessions/unfit").headers["etag"]
        wrong = client.post("/sessions/unfit/edit", json={"fields": {"topic": 5}}, headers={"If-Match": mark})
        assert check_problem(wrong, 422)["field"] == "topic"
        start = {"workflow": "brief", "input": {"topic": 5}}
        check_problem(client.post("/sessions", json=start), 422)
        check_problem(client.post("/sessions", json={"workflow": "brief", "input": {}}), 422)
        check_problem(client.post("/sessions", json={"workflow": "brief", "input": {"topic": "x", "owner": 1}}), 422)
        unknown = client.post("/sessions", json={"workflow": "breif"})
        assert "Did you mean 'brief'" in check_problem(unknown, 409)["detail"]


@pytest.mark.parametrize("body", [{"pause_after": "wirte"}, {"pause_after": ""}, {"rerun": ["write", "wirte"]}])
@pytest.mark.parametrize("ended", [True, False])
def test_a_resume_names_steps_of_the_workflow(server: Served, body: dict[str, object], ended: bool) -> None:
    name = f"steps-{ended}-{len(str(body))}"
    (server.finished if ended else server.asked)(name)
    before = state_of(server, name)
    with server.admin() as client:
        found = check_problem(client.post(f"/sessions/{name}/resume", json=body), 422)
        assert (found["type"], found["workflow"]) == ("urn:pausepoint:unknown-step", "brief")
        assert "Workflow 'brief' has no step " in found["detail"]
        assert state_of(server, name) == before


def test_each_refusal_of_a_bulk_verb_is_a_problem_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as server, server.admin() as client:
        for name in ("damaged", "kept", "free"):
            server.asked(name, owner="ann")
        connection = apsw.Connection(str(tmp_path / "store.db"))
        connection.execute("UPDATE sessions SET visit = visit + 1 WHERE session_id = 'damaged'")
        connection.close()
        handed_over = Selection._handed_over

        async def refuse(selection: Selection, session_id: str) -> Any:
            if session_id == "kept":
                raise VerbRefused(
                    "It stays paused. Call engine.session('kept').resume().", session_id="kept", status="paused"
                )
            return await handed_over(selection, session_id)

        monkeypatch.setattr(Selection, "_handed_over", refuse)
        found = {}
        for verb in ("pause", "resume"):
            answer = client.post("/sessions/bulk", json={"verb": verb, "filter": {"owner": "ann"}}).json()
            fits(answer, "bulk_result")
            found[verb] = {each["session_id"]: each["problem"] for each in answer["refused"]}
            for problem in found[verb].values():
                fits(problem, "problem")
                assert not names_code(problem["detail"])
        types = {verb: {name: each["type"] for name, each in some.items()} for verb, some in found.items()}
        damaged = {"damaged": "urn:pausepoint:damaged-record"}
        assert types == {"pause": damaged, "resume": damaged | {"kept": "urn:pausepoint:verb-refused"}}
        stored, kept = found["pause"]["damaged"]["detail"], found["resume"]["kept"]["detail"]
        assert stored.startswith("It is damaged, but the pause is stored. Session 'damaged'")
        assert kept.startswith("It stays paused. Read the session with GET /sessions/kept")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "ids-or-filter"),
        ({"ids": ["x"], "filter": {"tag": "y"}}, "ids-or-filter"),
        ({"filter": {}}, "empty-filter"),
    ],
)
def test_a_bulk_verb_says_which_sessions(server: Served, body: dict[str, object], kind: str) -> None:
    with server.admin() as client:
        refused = client.post("/sessions/bulk", json={"verb": "cancel"} | body)
        assert check_problem(refused, 400)["type"] == f"urn:pausepoint:{kind}"


def test_the_same_start_is_the_same_session_and_another_is_refused(server: Served) -> None:
    with server.admin() as client:
        asked = {"workflow": "brief", "input": {"topic": "x"}, "session_id": "same", "paused": True}
        assert client.post("/sessions", json=asked).status_code == 201
        assert client.post("/sessions", json=asked).status_code == 201
        other = client.post("/sessions", json=asked | {"input": {"topic": "y"}})
        assert check_problem(other, 409)["type"] == "urn:pausepoint:input-conflict"


def test_answers_are_judged(server: Served) -> None:
    question = server.asked("judged")
    with server.admin() as client:
        path = f"/inbox/{question}/answer"
        seen = client.get(f"/inbox/{question}").json()["digest"]
        check_problem(client.post(path, json={"value": "rude", "seen": seen}), 422)
        check_problem(client.post(path, json={"value": "formal", "seen": "00" * 16}), 412)
        check_problem(client.post(path, json={"value": "formal", "seen": "nonsense"}), 400)
        assert client.post(path, json={"value": "formal"}).status_code == 200
        server.run(server.engine.session("judged").outcome())
        assert client.post(path, json={"value": "formal"}).status_code == 200  # the same answer again
        conflict = client.post(path, json={"value": "playful"})
        assert check_problem(conflict, 409)["by"] == "root"


def test_a_refused_verb_says_what_to_do_over_http(server: Served) -> None:
    server.finished("ended")
    with server.admin() as client:
        client.post("/sessions/ended/cancel", json={})
        mark = client.get("/sessions/ended").headers["etag"]
        unknown = client.post("/sessions/ended/rewind", json={"to": "wirte"}, headers={"If-Match": mark})
        check_problem(unknown, 404)
        check_problem(client.get("/sessions/ended/state?at=9999"), 404)
        check_problem(client.get("/sessions/ended/why/wirte"), 404)
        check_problem(client.get("/sessions/ended/events?after=nonsense"), 400)
        check_problem(client.post("/sessions/ended/plan", json={"verb": "rewind"}), 400)
        check_problem(client.post("/sessions/ended/rewind", json={"to": "x", "to_operation": "y"}), 400)
        check_problem(client.post("/sessions/ended/fork", json={"at": "x", "at_operation": "y"}), 400)
        check_problem(client.post("/sessions/ended/redact", json={}), 400)
        check_problem(client.post("/sessions/ended/artifacts/adopt", json={}), 409)


@pytest.mark.parametrize("way", ["completed", "cancelled"])
def test_a_pause_of_a_session_that_has_ended_is_refused(server: Served, way: str) -> None:
    name = f"over-{way}"
    (server.finished if way == "completed" else server.asked)(name)
    with server.admin() as client:
        if way == "cancelled":
            assert client.post(f"/sessions/{name}/cancel", json={}).status_code == 200
        refused = check_problem(client.post(f"/sessions/{name}/pause", json={"reason": "lunch"}), 410)
        assert f"{name!r} has already {way}" in refused["detail"] or f"{name!r} was already {way}" in refused["detail"]


def test_a_failed_session_is_retried(server: Served) -> None:
    with server.admin() as client:
        client.post("/sessions", json={"workflow": "brief", "input": {"topic": "fail"}, "session_id": "failed"})
        server.run(server.engine.session("failed").outcome())
        found = client.get("/sessions?failed=1").json()["sessions"]
        assert [each["failure"]["message"] for each in found] == ["the library burned down"]
        assert client.post("/sessions/failed/resume", json={}).status_code == 200


@pytest.mark.long
def test_a_server_that_observes_leaves_the_work_to_another(tmp_path: Path) -> None:
    with served(tmp_path, drives="none") as observer, observer.admin() as client:
        made = client.post(
            "/sessions", json={"workflow": "brief", "input": {"topic": "x"}, "session_id": "remote"}
        ).json()  # fmt: skip
        assert made["status"] in ("created", "ready")
        with served(tmp_path) as worker:
            worker.run(worker.engine.take_ready())
            worker.run(worker.engine.session("remote").outcome())
        assert client.get("/sessions/remote").json()["status"] == "waiting"
        client.post("/sessions/remote/pause", json={})
        refused = client.post("/sessions/remote/resume", json={"wake": True})
        assert "does not drive" in check_problem(refused, 409)["detail"]
        assert client.post("/sessions/remote/resume", json={}).json()["pause_requested"] is False


@pytest.mark.long
def test_a_server_without_the_code_still_shows_pauses_and_answers(tmp_path: Path) -> None:
    with served(tmp_path) as worker:
        question = worker.asked("foreign")
    with served(tmp_path, workflows=()) as server, server.admin() as client:
        page = client.get("/sessions/foreign").json()
        assert [each["name"] for each in page["description"]["steps"]] == ["research", "choose", "write"]
        assert page["description"]["state"]["required"] == ["topic"], "the form of an edit"
        assert client.post("/sessions/foreign/pause", json={}).json()["status"] == "paused"
        assert client.post("/sessions/foreign/resume", json={}).status_code == 200
        check_problem(client.get("/sessions/foreign/plan"), 409)
        assert client.post(f"/inbox/{question}/answer", json={"value": "formal"}).status_code == 200
    with served(tmp_path) as worker:
        worker.run(worker.engine.take_ready())
        assert worker.run(worker.engine.session("foreign").outcome()).status is Status.COMPLETED


def test_a_declined_question_is_asked_again_and_a_plan_names_what_a_rewind_would_repeat(tmp_path: Path) -> None:
    paid: list[str] = []

    async def charge(card: str, ctx: Context) -> str:
        ctx.spend(usd=0.25)
        paid.append(card)
        return "paid"

    @workflow
    async def order(ctx: Context) -> str:
        await ctx.do(charge, "4711")
        await ctx.confirm("Ship it?")
        return "shipped"

    with served(tmp_path, workflows=(order,)) as server, server.admin() as client:

        async def declined() -> str:
            session = await server.engine.start(order, session_id="o")
            question = (await session.outcome()).questions[0]
            await session.answer("no")
            await session.outcome()
            return question.id

        question = server.run(declined())
        plan = client.post("/sessions/o/plan", json={"verb": "rewind", "to": "order"}).json()
        assert [(each["operation"], each["verdict"], each["usd"]) for each in plan["operations"]] == [
            ("charge", "runs again", 0.25), ("confirm", "runs again", 0.0),
        ]  # fmt: skip
        done = client.post("/sessions/o/ask_again", json={"question_id": question, "reason": "cheaper now"})
        assert (done.status_code, done.json()["status"]) == (200, "ready")
        check_problem(client.post("/sessions/o/ask_again", json={}), 409)
        assert client.post("/sessions/o/resume", json={}).status_code == 200
        again = server.run(server.engine.session("o").outcome()).questions[0]
        assert (again.next_question, again.id != question, paid) == ("Ship it?", True, ["4711"])


def test_a_session_is_rewound_to_an_operation_and_forked_there(server: Served) -> None:
    server.finished("inside")
    with server.admin() as client:
        first, second = client.get("/sessions/inside/operations").json()["operations"]
        mark = {"If-Match": client.get("/sessions/inside").headers["etag"]}
        wrong = client.post("/sessions/inside/rewind", json={"to_operation": "aks"}, headers=mark)
        assert check_problem(wrong, 404)["detail"] == (
            "Session 'inside' has no operation 'aks' that has ended. Did you mean 'ask'? List them with GET"
            " /sessions/inside/operations."
        )
        asked = {"verb": "rewind", "to_operation": second["seq"]}
        plan = client.post("/sessions/inside/plan", json=asked).json()
        assert [(each["operation"], each["verdict"]) for each in plan["operations"]] == [("ask", "runs again")]
        copy = {"at_operation": second["id"], "session_id": "inside-2"}
        assert client.post("/sessions/inside/plan", json={"verb": "fork", "at_operation": "ask"}).status_code == 200
        assert client.post("/sessions/inside/fork", json=copy).json()["step"] == second["step"]
        done = client.post("/sessions/inside/rewind", json={"to_operation": "ask#1"}, headers=mark)
        assert (done.status_code, done.json()["step"]) == (200, second["step"])
        listed = client.get("/sessions/inside/operations").json()["operations"]
        assert [each["left_behind"] for each in listed] == [False, True]
        assert first["left_behind"] is False
        mark = {"If-Match": done.headers["etag"]}
        asked = {"to_operation": first["seq"], "result": "notes on squid"}
        alone = client.post("/sessions/inside/rewind", json={"to": "research", "result": 1}, headers=mark)
        assert "'to_operation'" in check_problem(alone, 400)["detail"]
        assert client.post("/sessions/inside/rewind", json=asked, headers=mark).status_code == 200
        last = client.get("/sessions/inside/operations").json()["operations"][-1]
        assert (last["name"], last["result"], last["left_behind"]) == (first["name"], "notes on squid", False)


@pytest.mark.long
def test_a_workflow_with_artifacts_starts_with_its_folder_and_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(tmp_path / "store", workflows=(letter,)) as server, server.admin() as client:
        start = {"workflow": "letter", "input": {"topic": "x"}, "session_id": "one"}
        assert "needs a folder" in check_problem(client.post("/sessions", json=start), 409)["detail"]
        for folder in ("/etc", "../x", "a/../..", ".", ".git", "a/.b", "\0"):
            refused = check_problem(client.post("/sessions", json=start | {"folder": folder}), 422)
            assert (refused["field"], refused["type"]) == ("folder", "urn:pausepoint:folder-outside")
        limits = {"budget_tokens": 500, "budget_operations": 20, "budget_usd": 2.5}
        made = client.post("/sessions", json=start | limits | {"folder": "letters/one"})
        assert made.status_code == 201, made.text
        fits(made.json(), "handed_over")
        found = server.run(_info(server, "one"))
        assert (found.budget_tokens, found.budget_operations, found.budget_usd) == (500, 20, 2.5)
        assert (tmp_path / "letters" / "one" / "letter.html").exists()
        with server.client(server.token("operator", owner="ann")) as ann:
            check_problem(ann.post("/sessions", json=start | {"session_id": "two", "folder": "letters/one"}), 403)


async def _info(server: Served, session_id: str) -> Any:
    session = server.engine.session(session_id)
    await session.outcome()
    return await session.info()


def test_a_resume_changes_each_limit_of_the_budget(server: Served) -> None:
    server.asked("limits")
    with server.admin() as client:
        client.post("/sessions/limits/pause", json={})
        assert client.post("/sessions/limits/resume", json={"budget_tokens": 70}).status_code == 200
        assert client.post("/sessions/limits/resume", json={"budget_operations": 9}).status_code == 200
        found = client.get("/sessions/limits").json()
        assert (found["budget_usd"], found["budget_tokens"], found["budget_operations"]) == (None, 70, 9)


def test_sessions_are_filtered_by_the_time_of_their_last_change(server: Served) -> None:
    server.asked("timed")
    with server.admin() as client:
        at = client.get("/sessions/timed").json()["updated_at"]

        def names(**query: str) -> list[str]:
            found = client.get("/sessions", params={"prefix": "timed", **query})
            assert found.status_code == 200, found.text
            return [each["session_id"] for each in found.json()["sessions"]]

        assert names(since=at) == names(since="2001-01-01T00:00:00+02:00") == ["timed"]
        assert names(until="2001-01-01T00:00:00Z") == names(since="2101-01-01T00:00:00Z") == []
        check_problem(client.get("/sessions", params={"since": "2001-01-01T00:00:00"}), 400)  # of which time zone?
        bulk = {"verb": "pause", "filter": {"until": "2001-01-01T00:00:00Z"}, "dry_run": True}
        assert client.post("/sessions/bulk", json=bulk).json()["done"] == []


def test_a_session_whose_first_record_was_redacted_can_still_be_read(server: Served) -> None:
    server.run(server.engine.start(brief, session_id="emptied", topic="x", notes="secret", paused=True))
    with server.admin() as client:
        answer = client.post("/sessions/emptied/redact", json={"field": "notes"})
        assert answer.status_code == 200, answer.text
        assert 1 in answer.json()["records"]
        page = client.get("/sessions/emptied")
        assert (page.status_code, page.json()["origin"]) == (200, None)
