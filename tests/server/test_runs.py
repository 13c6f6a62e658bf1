"""Runs over HTTP: a server that has no code of their tasks reads, pauses and resumes what another engine drives."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from pausepoint import Engine
from pausepoint.engine.turns import ITEMS
from pausepoint.log import events as history
from pausepoint.orchestrator import FileStateStore, Orchestrator, SessionStateStore, Task, TaskAgent
from pausepoint.orchestrator.runs import RUN
from pausepoint.orchestrator.snapshot import RunStateSnapshot
from pausepoint.server import run_documents
from pausepoint.server.runs import REMEMBERED, Readers
from tests.orchestrator.shop import CHAIN, Shop
from tests.server.kit import Served, brief, check_problem, fits, served
from tests.support.children import ROOT
from tests.support.loop import PATIENCE, on_loop


class Client:
    """A client for tests that have an engine of their own on their loop."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    async def __call__(self, method: str, path: str, status: int = 200, **body: Any) -> Any:
        given = body if method == "POST" else None
        answer = await asyncio.to_thread(lambda: self.client.request(method, path, json=given))
        assert answer.status_code == status, answer.text
        if status != 200:
            return check_problem(answer, status)
        document = answer.json()
        fits(document, "runs" if path.partition("?")[0] == "/runs" else "run")
        return document

    async def until(self, path: str, true: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + PATIENCE
        while not true(found := await self("GET", path)):
            assert time.monotonic() < end, found
            await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def observed(server: Served, name: str = "ann") -> AsyncIterator[tuple[Client, Engine]]:
    """Yield a client of a server that drives nothing, and an engine that drives runs in the same store."""
    async with Engine(server.folder / "store.db", signals=False) as engine:
        with server.client(server.token("operator", None, name)) as client:
            yield Client(client), engine


async def asking(agent: TaskAgent) -> str:
    if agent.task.data == "ask":
        await agent.confirm(f"Run {agent.task.id!r}? It is restricted (rm).")
    return agent.task.id


@pytest.mark.long
@on_loop
async def test_a_server_without_the_code_shows_tasks_and_agents(tmp_path: Path) -> None:
    with served(tmp_path, drives="none", workflows=()) as server:
        async with observed(server) as (call, engine):
            shop = Shop(engine, "release", agents=2)
            shop.hold("a/first", "x/second")
            await shop.run.start(CHAIN, owner="ann", tags="night")
            await shop.reached("a/first", "x/second")
            (head,) = (await call("GET", "/runs"))["runs"]
            assert (head["session_id"], head["phase"]) == ("release", "running")
            run = await call("GET", "/runs/release")
            assert {task["id"]: (task["status"], task["waits_for"]) for task in run["tasks"]} == {
                "a": ("begun", []), "b": ("pending", ["a"]), "c": ("pending", ["b"]), "x": ("begun", []),
                "y": ("pending", ["x"]),
            }  # fmt: skip
            first, second = run["agents"]
            assert (first["id"], first["task"], first["last"]["event_type"]) == ("agent-1", "a", "task.started")
            assert (second["task"], second["last"]["event_type"]) == ("x", "operation.completed")
            assert second["since"] == next(task["began_at"] for task in run["tasks"] if task["id"] == "x")
            assert run["driven_by"] == [{"pid": os.getpid(), "host": os.uname().nodename}]
            assert run["note"] == f"Process {os.getpid()} on {os.uname().nodename} drives the run."
            shop.open()
            await shop.run.outcome()
            ended = await call("GET", "/runs/release")
            assert (ended["phase"], ended["counts"], ended["note"]) == (None, {"done": 5}, "The run has ended.")


@on_loop
async def test_a_resume_leaves_a_run_to_the_process_that_stands_by(tmp_path: Path) -> None:
    with (
        served(tmp_path, drives="none", workflows=()) as server,
        server.client(server.token("operator", None, "ann")) as http,
    ):
        call = Client(http)
        async with Engine(server.folder / "store.db", signals=False, drives="asked") as engine:
            shop = Shop(engine, "release", agents=2)
            await engine.pause_all()
            await shop.run.start(CHAIN)
            await engine.session("release").pause()
            await engine.lift_pause()
            waiting = asyncio.ensure_future(shop.run.stand_by())
            paused = await call.until("/runs/release", lambda found: found["driven_by"] != [])
            assert paused["phase"] == "paused"
            assert paused["note"] == f"Process {os.getpid()} on {os.uname().nodename} drives the run."
            await call("POST", "/runs/release/resume")
            assert await waiting
            assert not shop.calls, "nothing runs before this process says so"
            await shop.run.start()
            assert (await shop.run.outcome()).counts == {"done": 5}


@on_loop
async def test_a_restricted_command_is_a_question_of_its_task(tmp_path: Path) -> None:
    with served(tmp_path, drives="none", workflows=()) as server:
        async with observed(server) as (call, engine):
            run = Orchestrator(engine, "release", asking)
            await run.run([Task(id="clean", data="ask"), Task(id="ship", needs=["clean"])])
            found = await call("GET", "/runs/release")
            (question,) = found["questions"]
            assert question["task"] == "clean"
            assert question["next_question"] == "Run 'clean'? It is restricted (rm)."
            assert found["tasks"][0]["question"] == question["id"]
            answer = {"value": {"approved": True}, "seen": question["digest"]}
            taken = await asyncio.to_thread(call.client.post, f"/inbox/{question['id']}/answer", json=answer)
            assert taken.status_code == 200, taken.text
            done = await call.until("/runs/release", lambda found: found["status"] == "completed")
            assert (done["counts"], done["questions"]) == ({"done": 2}, [])


def shown(snapshot: RunStateSnapshot) -> Any:
    return [(each.id, each.task, each.memory) for each in snapshot.active_agents], snapshot.pending_tasks


async def snapshot_after(folder: Path, pause: Callable[[Shop], Any], call: str) -> Any:
    """Pause a run whose agents are in the middle of a call, and return its snapshot."""
    store = FileStateStore(folder)
    async with Engine(folder / "store.db", signals=False) as engine:
        shop = Shop(engine, "release", agents=2, snapshot_store=store)
        shop.hold(f"a/{call}", f"x/{call}")
        await shop.run.start(CHAIN)
        outcome = asyncio.ensure_future(shop.run.outcome())
        await shop.reached(f"a/{call}", f"x/{call}")
        pausing = asyncio.ensure_future(pause(shop))
        while not (await engine.session("release").info()).pause_requested:
            await asyncio.sleep(0.001)
        shop.open()
        await outcome
        await pausing
        snapshot = await store.load_snapshot()
        assert snapshot is not None
        return shown(snapshot)


@on_loop
async def test_a_pause_over_http_leaves_the_snapshot_that_a_pause_of_the_program_leaves(tmp_path: Path) -> None:
    async def own(shop: Shop) -> None:
        await shop.run.pause("lunch", "ann")

    (tmp_path / "own").mkdir()
    expected = await snapshot_after(tmp_path / "own", own, "first")
    assert expected[0][0][2] == {"first": "used a/first"}
    (tmp_path / "http").mkdir()
    with served(tmp_path / "http", drives="none", workflows=()) as server:
        call = Client(server.client(server.token("operator", None, "ann")))
        with call.client:

            async def over_http(shop: Shop) -> None:
                await call("POST", "/runs/release/pause", reason="lunch")

            assert await snapshot_after(tmp_path / "http", over_http, "first") == expected


@pytest.mark.long
@on_loop
async def test_a_run_is_paused_and_resumed_by_the_signed_in_person(tmp_path: Path) -> None:
    with served(tmp_path, drives="none", workflows=()) as server:
        async with observed(server) as (call, engine):
            shop = Shop(engine, "release", agents=1)
            shop.hold("a/first", "b/second")
            await shop.run.start(CHAIN, budget=1.0)
            await shop.reached("a/first")
            pausing = await call("POST", "/runs/release/pause", reason="lunch", mode="finish")
            assert (pausing["phase"], pausing["reason"]) == ("pausing", "lunch")
            assert [(each["by"], each["reason"]) for each in pausing["pauses"]] == [("ann", "lunch")]
            withdrawn = await call("POST", "/runs/release/resume")
            assert (withdrawn["phase"], withdrawn["pauses"]) == ("running", [])
            shop.held["a/first"].set()
            await shop.reached("b/second")
            await call("POST", "/runs/release/pause", reason="a wrong model", mode="abort")
            paused = await call.until("/runs/release", lambda found: found["phase"] == "paused")
            assert (paused["reason"], paused["agents"][0]["task"]) == ("a wrong model", "b")
            while await SessionStateStore(engine, "release").load_snapshot() is None:
                await asyncio.sleep(0.01)
            shop.open()
            resumed = await call("POST", "/runs/release/resume", budget_usd=5.0)
            assert resumed["note"] == f"Process {os.getpid()} on {os.uname().nodename} drives the run."
            done = await call.until("/runs/release", lambda found: found["status"] == "completed")
            assert (done["budget_usd"], done["counts"]) == (5.0, {"done": 5})
            asked = [
                each async for each in engine.session("release").events() if each.event_type.endswith(".requested")
            ]
            assert [(each.event_type, each.agent_name) for each in asked] == [
                ("pause.requested", "ann"), ("resume.requested", "ann"),
                ("pause.requested", "ann"), ("resume.requested", "ann"),
            ]  # fmt: skip


@on_loop
async def test_a_run_that_no_process_drives_waits_and_the_answer_says_how_to_start_it(tmp_path: Path) -> None:
    with served(tmp_path, drives="none", workflows=()) as server:
        async with observed(server) as (call, engine):
            shop = Shop(engine, "release", agents=1)
            shop.hold("a/first")
            await shop.run.start(CHAIN, tags=["program:shop.desk"])
            await shop.reached("a/first")
            await call("POST", "/runs/release/pause", mode="abort")
            await shop.run.outcome()
        with server.client(server.token("operator")) as client:
            call = Client(client)
            resumed = await call("POST", "/runs/release/resume")
            assert (resumed["status"], resumed["phase"], resumed["driven_by"]) == ("ready", "running", [])
            assert resumed["note"] == (
                "No process drives the workflow 'release'. Start the program of the run again:"
                " python -m shop.desk resume release."
            )
        async with observed(server) as (call, engine):
            again = Shop(engine, "release", agents=1)
            await again.run.start()
            assert (await again.run.outcome()).counts == {"done": 5}


def test_a_server_that_has_the_code_drives_the_run_itself(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.client(server.token("operator", None, "ann")) as client:

        async def start() -> None:
            run = Orchestrator(server.engine, "release", asking)
            await run.start([Task(id="a", data="ask"), Task(id="b")])
            await run.pause("lunch")

        server.run(start())
        resumed = client.post("/runs/release/resume", json={}).json()
        assert resumed["note"] == "This server drives the run."
        server.run(server.engine.session("release").outcome())
        assert client.get("/runs/release").json()["counts"] == {"begun": 1, "done": 1}


@on_loop
async def test_a_failed_run_says_that_a_resume_repeats_no_failed_task(tmp_path: Path) -> None:
    with served(tmp_path, drives="none", workflows=()) as server:
        async with observed(server) as (call, engine):
            shop = Shop(engine, "release")
            shop.failing["a"] = "no disk"
            await shop.run.run([Task(id="a"), Task(id="b", needs=["a"])])
            found = await call("GET", "/runs/release")
            assert (found["status"], found["phase"]) == ("failed", None)
            assert (found["tasks"][0]["note"], found["tasks"][1]["waits_for"]) == ("ValueError: no disk", ["a"])
            assert "A resume does not repeat failed tasks" in found["note"]


def test_what_is_no_run_or_belongs_to_another_owner_does_not_exist(tmp_path: Path) -> None:
    with served(tmp_path) as server:

        async def start() -> None:
            for owner in ("ann", "bob"):
                await Orchestrator(server.engine, f"{owner}s", asking).run([Task(id="a", data="ask")], owner=owner)
            await (await server.engine.start(brief, session_id="forged", tags=[RUN], topic="x")).outcome()

        server.run(start())
        server.asked("plain")
        with server.client(server.token("operator", "ann")) as client:
            assert [each["session_id"] for each in client.get("/runs").json()["runs"]] == ["anns"]
            assert client.get("/runs/anns").status_code == 200
            check_problem(client.get("/runs?owner=bob"), 403)
            for name in ("bobs", "plain", "forged", "unknown"):
                for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/resume")):
                    answer = client.request(method, f"/runs/{name}{path}", json={} if method == "POST" else None)
                    problem = check_problem(answer, 404)
                    assert problem["detail"] == f"There is no run {name!r}. List the runs with GET /runs."
        with server.admin() as client:
            for name in ("plain", "forged"):
                assert check_problem(client.get(f"/runs/{name}"), 404)["type"] == "urn:pausepoint:unknown-run"
                check_problem(client.post(f"/runs/{name}/pause", json={}), 404)
                assert not server.run(server.engine.session(name).info()).pause_requested
            check_problem(client.post("/runs/anns/resume", json={"steal": True}), 400)
            client.request("DELETE", "/sessions/anns", json={})
            assert check_problem(client.get("/runs/anns"), 410)["tombstone"]["session_id"] == "anns"
        assert not server.run(server.engine.session("bobs").info()).pause_requested


def test_a_list_of_runs_reads_the_shown_runs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as server, server.admin() as client:

        async def start() -> None:
            for number in range(7):
                run = Orchestrator(server.engine, f"run-{number}", asking)
                await run.run([Task(id=str(n), data="ask" if n == 2 else None) for n in range(3)])

        server.run(start())
        asked: list[str] = []
        store = type(server.engine.store)
        for name in ("records", "blobs", "signals", "questions", "find"):
            monkeypatch.setattr(store, name, _counted(asked, name, getattr(store, name)))
        pages, after = list[str](), ""
        for expected in (3, 3, 1):
            found = client.get(f"/runs?limit=3{after}").json()
            assert len(found["runs"]) == expected
            assert asked == ["find"], "one query, and no record of any run"
            asked.clear()
            pages += [each["session_id"] for each in found["runs"]]
            assert found["runs"][0]["progress"] == {"done": 2, "total": 3}
            after = f"&after={found['next']}"
        assert pages == [f"run-{number}" for number in reversed(range(7))]
        check_problem(client.get("/runs?after=nonsense"), 400)


def test_a_run_that_is_requested_again_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as server, server.admin() as client:
        runs = list[Orchestrator]()

        async def start(*tasks: str) -> None:
            if not runs:
                runs.append(Orchestrator(server.engine, "release", asking))
            await runs[0].run([Task(id=each) for each in tasks])

        server.run(start("a", "b"))
        first = client.get("/runs/release").json()
        asked: list[str] = []
        store = type(server.engine.store)
        monkeypatch.setattr(store, "records", _counted(asked, "records", store.records))
        assert client.get("/runs/release").json() == first
        assert asked == []
        client.request("DELETE", "/sessions/release", json={})
        server.run(start("c"))
        asked.clear()
        assert [task["id"] for task in client.get("/runs/release").json()["tasks"]] == ["c"]
        assert asked, "another run with the same id is read"


def test_only_the_readers_of_the_last_runs_are_kept() -> None:
    readers = Readers()
    engine = Engine(":memory:")
    first = readers.of(engine, "run-0")
    for number in range(REMEMBERED):
        assert readers.of(engine, "run-0") is first
        readers.of(engine, f"run-{number + 1}")
    for number in range(REMEMBERED):
        readers.of(engine, f"other-{number}")
    assert readers.of(engine, "run-0") is not first


def _counted(asked: list[str], name: str, real: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        return real(*args, **kwargs)

    return call


PROGRAM = """
import asyncio, sys
from pathlib import Path
from pausepoint import Engine
from pausepoint.orchestrator import Orchestrator, Task

folder = Path(sys.argv[1])

async def wait(name: str) -> str:
    (folder / f"{name}.begun").touch()
    while not (folder / f"{name}.open").exists():
        await asyncio.sleep(0.01)
    return name

async def work(agent):
    await agent.call(wait, agent.task.id)

async def main():
    async with Engine(folder / "store.db") as engine:
        run = Orchestrator(engine, "release", work, agents=1)
        await run.start([Task(id="a"), Task(id="b", needs=["a"])])
        while (await run.report()).status.value != "completed":
            await run.outcome()
            await asyncio.sleep(0.05)

asyncio.run(main())
"""


@pytest.mark.long
@on_loop
async def test_a_run_of_another_process_stops_and_continues_there(tmp_path: Path) -> None:
    with served(tmp_path, drives="none", workflows=()) as server, server.client(server.token("operator")) as client:
        call = Client(client)
        words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        process = subprocess.Popen(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        try:
            end = time.monotonic() + PATIENCE
            while not (tmp_path / "a.begun").exists():
                assert process.poll() is None
                assert time.monotonic() < end
                await asyncio.sleep(0.02)
            pausing = await call("POST", "/runs/release/pause", reason="lunch")
            assert (pausing["phase"], pausing["agents"][0]["task"]) == ("pausing", "a")
            assert [each["pid"] for each in pausing["driven_by"]] == [process.pid]
            (tmp_path / "a.open").touch()
            paused = await call.until("/runs/release", lambda found: found["phase"] == "paused")
            assert paused["counts"] == {"done": 1, "pending": 1}
            resumed = await call("POST", "/runs/release/resume")
            assert resumed["note"].startswith(f"Process {process.pid} on ")
            (tmp_path / "b.open").touch()
            done = await call.until("/runs/release", lambda found: found["status"] == "completed")
            assert done["counts"] == {"done": 2}
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.long
@on_loop
async def test_a_large_run_is_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = import_module("pausepoint.orchestrator.runs")  # the package has a function of this name
    tasks, turn, done = 300, 0, Counter[tuple[str, int]]()

    def counted(place: Any, name: str) -> None:
        real = getattr(place, name)

        def count(*given: Any) -> Any:
            done[name, turn] += 1
            return real(*given)

        monkeypatch.setattr(place, name, count)

    async def tick() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with Engine(tmp_path / "store.db", signals=False) as engine:
        await Orchestrator(engine, "large", asking, agents=8).run([Task(id=f"t{n}") for n in range(tasks)])
        for place, name in (
            (runs, "_said"), (runs, "_Row"), (runs, "TaskStatus"), (run_documents, "_task"), (history, "_of_record"),
        ):  # fmt: skip
            counted(place, name)
        ticking = asyncio.create_task(tick())
        report = await runs.RunReader(engine, "large").read()
        document = msgspec.json.decode(msgspec.json.encode(await run_documents.run(report, [], "")))
        ticking.cancel()
    assert document["counts"] == {"done": tasks}
    assert [task["id"] for task in document["tasks"]] == [f"t{n}" for n in range(tasks)]
    most = {
        name: max(count for (each, _), count in done.items() if each == name) for name in {each for each, _ in done}
    }
    assert set(most) == {"_said", "_Row", "TaskStatus", "_task", "_of_record"}, "each of them was counted"
    assert max(most.values()) <= ITEMS, most
