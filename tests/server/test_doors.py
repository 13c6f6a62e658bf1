"""What leads into a store and out of it over HTTP: comparisons, answer links, and imports."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.errors import StoreUnavailable
from pausepoint.model.questions import Question
from pausepoint.server import documents
from pausepoint.server.asgi import Settings, application
from pausepoint.server.limits import Limits
from pausepoint.server.people import Person
from pausepoint.server.retries import KEY, REPLAYED
from pausepoint.server.tokens import Tokens
from tests.server.kit import Served, brief, check_problem, fits, letter, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("doors")) as one:
        one.questions["anns"] = one.asked("anns", topic="octopus", owner="ann")
        one.questions["bobs"] = one.asked("bobs", topic="squid", owner="bob")
        yield one


# compare


def test_two_sessions_are_compared_now_and_at_checkpoints(server: Served) -> None:
    with server.admin() as client:
        answer = client.get("/sessions/anns/diff", params={"other": "bobs"})
        assert answer.status_code == 200, answer.text
        document = answer.json()
        fits(document, "diff")
        assert (document["session_id"], document["other_id"]) == ("anns", "bobs")
        assert [(each["path"], each["before"], each["after"]) for each in document["changes"]] == [
            ("topic", "octopus", "squid"), ("notes", "notes on octopus", "notes on squid"),
        ]  # fmt: skip
        earlier = client.get("/sessions/anns/diff", params={"a": "1", "other": "bobs", "b": "research#1"}).json()
        assert [each["path"] for each in earlier["changes"]] == ["topic", "notes"]
        assert (earlier["a"], earlier["changes"][1]["before"]) == (1, "")


def test_a_comparison_needs_something_to_compare_with_and_sees_no_session_of_another_owner(server: Served) -> None:
    with server.admin() as client, server.client(server.token("viewer", "ann")) as anns:
        problem = check_problem(client.get("/sessions/anns/diff"), 400)
        assert "'a'" in problem["detail"]
        assert "'other'" in problem["detail"]
        check_problem(client.get("/sessions/anns/diff", params={"other": "nobody"}), 404)
        check_problem(client.get("/sessions/anns/diff", params={"other": "bobs", "b": "write#7"}), 404)
        refused, unknown = (anns.get("/sessions/anns/diff", params={"other": other}) for other in ("bobs", "none"))
        assert check_problem(refused, 404)["detail"].replace("bobs", "none") == check_problem(unknown, 404)["detail"]


# answer links


def linked(server: Served, question: str, token: str | None = None, **body: Any) -> httpx.Response:
    with server.client(token or server.token("operator", name="eve")) as client:
        return client.post(f"/inbox/{question}/link", json=body)


def test_a_link_answers_its_question_and_the_history_names_who_made_it(server: Served) -> None:
    question = server.asked("linked")
    answer = linked(server, question, name="Ann", seconds=3600)
    assert answer.status_code == 201, answer.text
    document = answer.json()
    fits(document, "answer_link")
    base, _, token = document["address"].partition("/#token=")
    assert (base, document["question_id"]) == (server.base, question)
    left = datetime.fromisoformat(document["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    with server.client(token) as client:
        assert [each["id"] for each in client.get("/inbox").json()["questions"]] == [question]
        check_problem(client.post(f"/inbox/{question}/link", json={}), 403)  # a link makes no other one
        assert client.post(f"/inbox/{question}/answer", json={"value": "formal"}).json()["by"] == "Ann (link of eve)"
    assert check_problem(linked(server, question), 410)["type"] == "urn:pausepoint:question-closed"


@workflow
async def hurry(ctx: Context) -> str:
    return await ctx.ask("Now?", expires=timedelta(hours=1))


def test_a_link_never_outlives_its_question(server: Served) -> None:
    async def ask() -> Question:
        session = await server.engine.start(hurry, session_id="hurry")
        await session.outcome()
        (question,) = await session.questions()
        return question

    question = server.run(ask())
    document = linked(server, question.id, seconds=31_000_000).json()
    assert question.expired_at is not None
    assert timedelta(0) <= question.expired_at - datetime.fromisoformat(document["expires_at"]) < timedelta(seconds=1)


def test_a_link_begins_with_the_address_that_its_reader_can_reach(server: Served) -> None:
    question = server.questions["anns"]
    address = linked(server, question, url="https://pause.example.com/x/").json()["address"]
    assert address.startswith("https://pause.example.com/x/#token=")
    for wrong in ("pause.example.com", "javascript:alert(1)", "https://a b", "https://x/#y", ""):
        problem = check_problem(linked(server, question, url=wrong), 422)
        assert problem["field"] == "url"


def test_a_link_is_made_by_operators_for_questions_that_they_may_see(server: Served) -> None:
    question = server.questions["bobs"]
    assert check_problem(linked(server, question, server.token("answerer")), 403)["role"] == "operator"
    check_problem(linked(server, question, server.token("operator", "ann")), 404)
    for wrong in ({"seconds": 59}, {"seconds": 10**9}, {"name": ""}, {"name": "x" * 101}, {"by": "ann"}):
        check_problem(linked(server, question, **wrong), 400)


def test_a_server_whose_program_signs_people_in_makes_no_links(tmp_path: Path) -> None:
    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        who = lambda request: Person("ann", "operator")  # noqa: E731
        return application(engine, Settings(who=who, hosts=[f"127.0.0.1:{port}"], limits=Limits()))

    with served(tmp_path, make=make) as server, server.client(**{"X-Pausepoint": "1"}) as client:
        question = server.asked("hers")
        assert "makes no links" in check_problem(client.post(f"/inbox/{question}/link", json={}), 404)["detail"]


# imports


async def exported(session_id: str, folder: Path | None = None) -> bytes:
    """Return the bundle of a paused session of another store."""
    async with Engine(":memory:") as engine:
        options: dict[str, Any] = {"session_id": session_id, "owner": "carl", "paused": True}
        if folder is None:
            return (await (await engine.start(brief, topic="kelp", **options)).export()).to_bytes()
        return (await (await engine.start(letter, topic="tides", folder=folder, **options)).export()).to_bytes()


def imported(server: Served, bundle: bytes, token: str | None = None, **query: str) -> httpx.Response:
    with server.client(token or server.tokens.own) as client:
        return client.post("/imports", params=query, content=bundle)


def ids(server: Served) -> set[str]:
    return {each.session_id for each in server.run(server.engine.sessions())}


def test_an_imported_session_is_as_it_was_and_can_be_exported_again(server: Served) -> None:
    bundle = server.run(exported("kelp"))
    answer = imported(server, bundle)
    assert answer.status_code == 201, answer.text
    document = answer.json()
    fits(document, "imported_session")
    assert (document["session_id"], document["status"], document["owner"]) == ("kelp", "paused", "carl")
    assert (document["sha256"], answer.headers["etag"]) == (sha256(bundle).hexdigest(), document["etag"])
    with server.admin() as client:
        assert client.get(answer.headers["location"].removeprefix("/api/v1")).json()["session_id"] == "kelp"
        assert client.get("/sessions/kelp/export").content == bundle
        assert client.get("/sessions/kelp/state").json()["values"]["topic"] == "kelp"
    problem = check_problem(imported(server, bundle), 409)
    assert "already exists" in problem["detail"]
    assert imported(server, bundle, session_id="kelp-2").json()["session_id"] == "kelp-2"


def test_what_is_no_whole_export_is_refused_and_nothing_is_imported(server: Served) -> None:
    before, bundle = ids(server), server.run(exported("broken"))
    for wrong in (b"", b"{}", b"hello", bundle[:-9], bundle.replace(b"kelp", b"help"), b'{"a":' * 20_000):
        problem = check_problem(imported(server, wrong), 422)
        assert problem["type"] == "urn:pausepoint:damaged-bundle"
        assert "/tmp" not in problem["detail"]
    check_problem(imported(server, bundle, session_id="a\nb"), 400)
    assert ids(server) == before


def test_an_import_needs_an_admin_of_all_owners(server: Served) -> None:
    bundle = server.run(exported("foreign"))
    for token in (server.token("operator"), server.token("admin", "carl")):
        check_problem(imported(server, bundle, token), 403)
    assert "foreign" not in ids(server)


def test_artifacts_need_a_folder_below_that_of_the_server(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = server.run(exported("letter", tmp_path / "sender"))
    monkeypatch.chdir(server.folder)
    assert check_problem(imported(server, bundle), 422)["field"] == "folder"
    assert check_problem(imported(server, bundle, folder="../outside"), 422)["field"] == "folder"
    assert imported(server, bundle, folder="letters/one").status_code == 201
    plain = server.run(exported("plain"))
    check_problem(imported(server, plain, folder="letters/two"), 409)


def test_a_bundle_that_is_too_large_is_refused_as_it_comes(tmp_path: Path) -> None:
    def slices() -> Iterator[bytes]:
        yield from (b"x" * 1000 for _ in range(100))

    with served(tmp_path, limits=Limits(bundle=5_000)) as server, server.admin() as client:
        assert check_problem(client.post("/imports", content=slices()), 413)["limit"] == 5_000


def test_a_repeated_import_with_a_key_gets_the_first_answer(server: Served) -> None:
    bundle, key = server.run(exported("twice")), {KEY: "import-1"}
    with server.admin(**key) as client:
        first, second = (client.post("/imports", content=bundle) for _ in range(2))
        assert (first.status_code, first.content) == (second.status_code, second.content)
        assert (first.headers.get(REPLAYED), second.headers.get(REPLAYED)) == (None, "true")
        check_problem(client.post("/imports", content=bundle + b" "), 422)


@pytest.mark.parametrize("query", [{}, {"session_id": "renamed"}])
def test_an_import_whose_answer_was_lost_is_answered_from_the_facts(
    server: Served, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    name = query.get("session_id", "lost")
    bundle = server.run(exported("lost"))

    def unavailable(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("The store is busy. Retry later.", path="")

    with server.admin(**{KEY: f"import-{name}"}) as client:
        with monkeypatch.context() as patch:
            patch.setattr(documents.ImportedSession, "of", unavailable)
            check_problem(client.post("/imports", content=bundle, params=query), 503)
        again = client.post("/imports", content=bundle, params=query)
        assert (again.status_code, again.json()["session_id"]) == (201, name), again.text
        assert again.headers[REPLAYED] == "true"
