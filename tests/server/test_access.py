"""Owners: a person with an owner sees and changes the sessions of that owner only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from pausepoint import Context, Workflow, step
from tests.server.kit import Served, brief, check_problem, letter, served


class Errand(BaseModel):
    topic: str
    text: str = ""


@step(writes="text")
async def delegate(ctx: Context, topic: str) -> str:
    done = await ctx.call(brief, topic=topic)
    return str(done.text)


errand = Workflow("errand", state=Errand, steps=[delegate])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("access"), workflows=(brief, letter, errand)) as found:
        found.asked("anns", owner="ann")
        found.asked("bobs", owner="bob")
        found.asked("nobodys")
        yield found


def test_lists_have_the_owners_sessions_only(server: Served) -> None:
    with server.client(server.token("viewer", "ann")) as client:
        found = client.get("/sessions?count=1").json()
        assert {each["owner"] for each in found["sessions"]} == {"ann"}
        assert "anns" in {each["session_id"] for each in found["sessions"]}
        assert found["total"] == len(found["sessions"])
        assert client.get("/sessions?owner=ann").status_code == 200
        check_problem(client.get("/sessions?owner=bob"), 403)
        check_problem(client.get("/store"), 403)
    with server.client(server.token("answerer", "ann")) as client:
        asking = {each["session_id"] for each in client.get("/inbox").json()["questions"]}
        assert "anns" in asking
        assert not asking & {"bobs", "nobodys"}
        check_problem(client.get("/inbox?owner=bob"), 403)


def test_a_new_session_belongs_to_the_owner(server: Served) -> None:
    with server.client(server.token("operator", "ann")) as client:
        made = client.post("/sessions", json={"workflow": "brief", "input": {"topic": "x"}, "paused": True}).json()
        assert made["owner"] == "ann"
        asked = {"workflow": "brief", "input": {"topic": "x"}, "owner": "bob"}
        check_problem(client.post("/sessions", json=asked), 403)
        taken = {"workflow": "brief", "input": {"topic": "octopus"}, "session_id": "bobs"}
        check_problem(client.post("/sessions", json=taken), 409)
        forked = client.post(f"/sessions/{made['session_id']}/fork", json={}).json()
        assert forked["owner"] == "ann"


def test_what_concerns_everybody_is_not_for_an_owner(server: Served) -> None:
    with server.client(server.token("admin", "ann")) as client:
        for answer in (
            client.put("/standing-pause", json={}), client.request("DELETE", "/standing-pause", json={}),
            client.post("/store/verify", json={}), client.post("/store/gc", json={}),
        ):  # fmt: skip
            check_problem(answer, 403)
    assert server.run(server.engine.standing_pause()) is None


def test_a_bulk_verb_reaches_the_owners_sessions_only(server: Served) -> None:
    with server.client(server.token("operator", "ann")) as client:
        done = client.post("/sessions/bulk", json={"verb": "pause", "ids": ["bobs", "nobodys", "anns"]}).json()
        assert [each["session_id"] for each in done["done"]] == ["anns"]
        assert [each["problem"]["status"] for each in done["refused"]] == [404, 404]
        matched = client.post(
            "/sessions/bulk", json={"verb": "cancel", "filter": {"workflow": "brief"}, "dry_run": True}
        )
        assert {each["session_id"] for each in matched.json()["done"]} >= {"anns"}
        assert {"bobs", "nobodys"} & {each["session_id"] for each in matched.json()["done"]} == set()
        check_problem(client.post("/sessions/bulk", json={"verb": "pause", "filter": {"owner": "bob"}}), 403)
        check_problem(client.post("/sessions/bulk", json={"verb": "pause"}), 400)
    with server.admin() as client:
        check_problem(client.post("/sessions/bulk", json={"verb": "pause", "filter": {}}), 400)


async def child_of(server: Served, session_id: str) -> str:
    """Start a session of Ann's that waits for a child, and return the child's id."""
    session = await server.engine.start(errand, session_id=session_id, owner="ann", topic="x")
    await session.outcome()
    (child,) = await session.children()
    return str(child.session_id)


def test_a_child_belongs_to_the_owner_of_its_root(server: Served) -> None:
    child = server.run(child_of(server, "parent"))
    with server.client(server.token("viewer", "ann")) as client:
        assert client.get(f"/sessions/{child}").status_code == 200
        assert [each["session_id"] for each in client.get("/sessions/parent/children").json()["sessions"]] == [child]
        assert len(client.get("/sessions/parent/tree").json()["sessions"]) == 2
    with server.client(server.token("viewer", "bob")) as client:
        check_problem(client.get(f"/sessions/{child}"), 404)


def test_a_removed_session_is_gone_for_its_owner_and_unknown_to_others(server: Served) -> None:
    server.finished("old", owner="ann")
    server.run(server.engine.session("old").remove(by="root", reason="tidy"))
    with server.client(server.token("viewer", "ann")) as client:
        assert check_problem(client.get("/sessions/old"), 410)["tombstone"]["reason"] == "tidy"
    with server.client(server.token("viewer", "bob")) as client:
        check_problem(client.get("/sessions/old"), 404)


def test_an_answerer_sees_only_questions_and_the_facts_of_their_sessions(server: Served) -> None:
    server.finished("quiet", owner="ann")
    server.run(child_of(server, "asking"))
    with server.client(server.token("answerer", "ann")) as client:
        found = client.get("/sessions/asking")
        assert (found.status_code, "description" in found.json()) == (200, False)
        check_problem(client.get("/sessions/quiet"), 404)
        check_problem(client.post("/sessions/quiet/send", json={"value": 1}), 404)
        check_problem(client.get("/sessions"), 403)
