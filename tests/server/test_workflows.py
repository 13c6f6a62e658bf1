"""Workflows over HTTP: described without their code, with the engines that drive them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Workflow, step
from tests.server.kit import Served, brief, check_problem, fits, served


class Older(BaseModel):
    topic: str


@step
async def think(topic: str) -> None:
    pass


older = Workflow("brief", state=Older, steps=[think])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a session of an older definition of brief, and one of the present one, which asks."""
    folder = tmp_path_factory.mktemp("workflows")
    with served(folder, workflows=(older,), drives="none") as server:
        server.run(server.engine.start(older, session_id="old", paused=True, topic="x"))
    with served(folder, workflows=(brief,)) as server:
        server.asked("new", owner="ann")
    return folder


@pytest.fixture(scope="module")
def observer(folder: Path) -> Iterator[Served]:
    """A server without any code."""
    with served(folder, workflows=(), drives="none") as found:
        yield found


@pytest.mark.long
def test_a_workflow_is_described_without_its_code(observer: Served) -> None:
    with observer.admin() as client:
        (listed,) = client.get("/workflows").json()["workflows"]
        assert (listed["name"], listed["version"], listed["sessions"]) == ("brief", 1, 2)
        found = client.get("/workflows/brief").json()
        fits(found, "http_workflow")
        steps = {each["name"]: each for each in found["steps"]}
        assert (steps["write"]["reads"], steps["write"]["writes"]) == (["notes", "tone"], ["text"])
        assert (found["state"]["required"], found["routes"], found["guards"]) == (["topic"], [], [])
        assert client.get("/workflows/brief?version=1").status_code == 200
        assert "Known versions: 1" in check_problem(client.get("/workflows/brief?version=7"), 404)["detail"]
        assert "Did you mean 'brief'" in check_problem(client.get("/workflows/breif"), 404)["detail"]


def test_a_session_is_described_by_the_definition_that_it_ran_with(observer: Served) -> None:
    with observer.admin() as client:
        pages = {name: client.get(f"/sessions/{name}").json()["description"] for name in ("old", "new")}
    names = {name: [each["name"] for each in page["steps"]] for name, page in pages.items()}
    assert names == {"old": ["think"], "new": ["research", "choose", "write"]}
    assert set(pages["old"]["state"]["properties"]) == {"topic"}


def test_a_person_with_an_owner_sees_the_workflows_of_their_sessions(observer: Served) -> None:
    with observer.client(observer.token("viewer", "ann")) as client:
        assert [(each["name"], each["sessions"]) for each in _listed(client)] == [("brief", 1)]
        assert client.get("/workflows/brief").status_code == 200
    with observer.client(observer.token("viewer", "bob")) as client:
        assert _listed(client) == []
        check_problem(client.get("/workflows/brief"), 404)


def _listed(client: Any) -> Any:
    return client.get("/workflows").json()["workflows"]


def test_the_engines_that_drive_a_workflow_are_named(folder: Path, observer: Served) -> None:
    with observer.admin() as client:
        assert (_listed(client)[0]["engines"], _listed(client)[0]["drives"]) == ([], False)
        with served(folder, workflows=(brief,)) as worker, worker.admin() as other:
            assert [set(each) for each in _listed(client)[0]["engines"]] == [{"pid", "host", "since"}]
            assert (_listed(client)[0]["drives"], _listed(other)[0]["drives"]) == (False, True)
            assert client.get("/workflows/brief").json()["engines"] == _listed(client)[0]["engines"]


@pytest.mark.long
def test_after_a_resume_the_answer_says_which_engine_drives_the_session(folder: Path, observer: Served) -> None:
    nobody = "No engine drives 'brief'. Start `pausepoint worker`."
    with observer.admin() as client:
        many: dict[str, Any] = {"verb": "resume", "ids": ["old"]}
        client.post("/sessions/old/pause", json={})
        alone = client.post("/sessions/old/resume", json={}).json()
        assert alone["drivers"] == [{"workflow": "brief", "engines": [], "advice": nobody}]
        for asked in (many, {"verb": "resume", "filter": {"workflow": "brief"}, "dry_run": True}):
            client.post("/sessions/old/pause", json={})
            assert client.post("/sessions/bulk", json=asked).json()["drivers"] == alone["drivers"]
        assert client.post("/sessions/bulk", json=many | {"verb": "pause"}).json()["drivers"] == []
        with served(folder, workflows=(brief,), drives="all") as worker, worker.admin() as other:
            (driver,) = client.post("/sessions/old/resume", json={}).json()["drivers"]
            assert (len(driver["engines"]), driver["advice"]) == (1, None)
            made = other.post("/sessions", json={"workflow": "brief", "input": {"topic": "y"}}).json()
            assert "drivers" not in made, "the server drives it itself"


@pytest.mark.long
def test_after_a_start_and_a_fork_the_answer_says_which_engine_drives_the_session(tmp_path: Path) -> None:
    with served(tmp_path, workflows=(brief,), drives="none") as observer, observer.admin() as client:
        asked: dict[str, Any] = {"workflow": "brief", "input": {"topic": "x"}, "session_id": "one"}
        made = client.post("/sessions", json=asked)
        fits(made.json(), "handed_over")
        assert made.json()["drivers"][0]["advice"].startswith("No engine drives 'brief'.")
        forked = client.post("/sessions/one/fork", json={"paused": False}).json()
        assert forked["drivers"] == made.json()["drivers"]
        assert "drivers" not in client.post("/sessions/one/fork", json={}).json(), "it is paused"
