"""The list of questions over HTTP: its orders, and pages that follow each other in each of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Workflow, step
from tests.server.kit import Served, check_problem, fits, served


class Errand(BaseModel):
    hours: int | None = None
    answer: str = ""


@step(writes="answer")
async def ask(ctx: Context, hours: int | None) -> str:
    return await ctx.ask("Which?", expires=None if hours is None else timedelta(hours=hours))


errand = Workflow("errand", state=Errand, steps=[ask])
LIMITS = {"slow": 9, "never": None, "quick": 1, "middle": 5}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with questions that were asked in the order of `LIMITS`."""
    with served(tmp_path_factory.mktemp("inbox"), workflows=(errand,)) as found:
        for name, hours in LIMITS.items():
            found.run(_asked(found, name, hours))
        yield found


async def _asked(server: Served, name: str, hours: int | None) -> None:
    await (await server.engine.start(errand, session_id=name, hours=hours)).outcome()


ORDERS = {
    "": ["slow", "never", "quick", "middle"],
    "sort=asked&reverse=true": ["middle", "quick", "never", "slow"],
    "sort=expires": ["quick", "middle", "slow", "never"],
    "sort=expires&reverse=1": ["never", "slow", "middle", "quick"],
    "sort=updated": ["middle", "quick", "never", "slow"],
}


@pytest.mark.parametrize("query", ORDERS)
def test_questions_are_sorted_and_their_pages_follow_each_other(server: Served, query: str) -> None:
    with server.kept(server.tokens.own) as client:
        assert _names(client.get(f"/inbox?{query}").json()) == ORDERS[query]
        pages = [client.get(f"/inbox?{query}&limit=1").json()]
        while pages[-1]["next"] is not None:
            pages.append(client.get(f"/inbox?{query}&limit=1&after={pages[-1]['next']}").json())
        assert [name for page in pages for name in _names(page)] == ORDERS[query]


def _names(page: Any) -> list[str]:
    fits(page, "question_page")
    return [each["session_id"] for each in page["questions"]]


def test_an_order_that_does_not_exist_or_differs_from_the_cursors_is_refused(server: Served) -> None:
    with server.kept(server.tokens.own) as client:
        check_problem(client.get("/inbox?sort=alphabet"), 400)
        after = client.get("/inbox?sort=expires&limit=1").json()["next"]
        assert "sorted by 'expires'" in check_problem(client.get(f"/inbox?after={after}"), 400)["detail"]


def test_an_owner_sees_only_their_questions_in_every_order(server: Served, tmp_path: Path) -> None:
    with server.client(server.token("answerer", "ann")) as client:
        for query in ORDERS:
            assert client.get(f"/inbox?{query}").json()["questions"] == []


def test_a_message_answers_no_question_that_its_author_has_not_seen(server: Served) -> None:
    with server.kept(server.tokens.own) as client:
        before = client.get("/inbox?sort=asked").json()
        for seen in ("", "00" * 16):
            changed = client.post("/sessions/never/send", json={"value": "this", "seen": seen})
            assert check_problem(changed, 412)["type"] == "urn:pausepoint:question-changed"
        described = client.get("/openapi.json").json()["paths"]["/sessions/{session_id}/send"]["post"]["responses"]
        assert "412" in described
        check_problem(client.post("/sessions/never/send", json={"value": "this", "seen": "nonsense"}), 400)
        assert client.get("/inbox?sort=asked").json() == before


class Order(BaseModel):
    count: int = 0


@step(writes="count")
async def count(ctx: Context) -> int:
    found: int = await ctx.ask("How many?", schema={"type": "integer", "minimum": 3})
    return found


@pytest.mark.long
def test_an_answer_that_violates_the_schema_is_refused_and_the_question_stays(tmp_path: Path) -> None:
    order = Workflow("order", state=Order, steps=[count])
    with served(tmp_path, workflows=(order,)) as server, server.admin() as client:
        server.run(_started(server, order))
        [before] = client.get("/inbox").json()["questions"]
        for value, why in (("x", "'x' is not of type 'integer'"), (2, "2 is less than the minimum of 3")):
            refused = client.post(f"/inbox/{before['id']}/answer", json={"value": value, "seen": before["digest"]})
            assert why in check_problem(refused, 422)["reason"]
        assert client.get("/inbox").json()["questions"] == [before]
        assert client.post(f"/inbox/{before['id']}/answer", json={"value": "3"}).status_code == 200


async def _started(server: Served, workflow: Workflow[Any]) -> None:
    await (await server.engine.start(workflow, session_id="order")).outcome()
