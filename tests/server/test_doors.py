"""What leads into a store and out of it over HTTP: comparisons, answer links, and imports."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from pausepoint import Context, workflow
from pausepoint.model.questions import Question
from tests.server.kit import Served, check_problem, fits, served


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
