"""Agents of other programs as tasks of devs: a pause holds them at their next tool call, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.apps.devs.gated import MOST, GatedAgent, cost_in
from pausepoint.apps.devs.models import Todo
from pausepoint.gate.reports import AgentFacts, CallFacts, Report
from pausepoint.gate.warden import Processes
from tests.apps.devs_kit import lines, write_plan
from tests.apps.programs import Devs
from tests.apps.test_devs_standby import status, waits
from tests.cli.kit import run
from tests.gate import fake_agent
from tests.gate.kit import write_hooks
from tests.support.forkserver import Child, Forks
from tests.support.loop import on_loop
from tests.support.waits import until

NAMES = ("ada", "ben", "cleo")
CALLS = 3
COMMAND = "while [ -e held ]; do sleep 0.05; done"


class Gated(Devs):
    """A plan whose tasks are fake agents. A call appends a line, then lasts while the file ``held`` exists."""

    def plan(self, names: tuple[str, ...] = NAMES, command: str = COMMAND, calls: int = CALLS, **head: Any) -> None:
        tasks = [self.task(name, "--calls", str(calls), "--own-session", "--command", command) for name in names]
        write_plan(self.folder, tasks, agents=len(names), **head)
        write_hooks(self.work)

    @property
    def held(self) -> Path:
        return self.work / "held"

    def task(self, name: str, *options: str) -> dict[str, Any]:
        agent = shlex.join([sys.executable, fake_agent.__file__, "--name", name, *options])
        return {"id": name, "agent": "claude", "run": f"echo {name} >> began; {agent}",
                "again": f"echo {name} again >> began; {agent} --resume {{session}}"}  # fmt: skip

    @property
    def done(self) -> Counter[str]:
        return Counter(lines(self.folder, "effects.txt"))

    @property
    def snapshot(self) -> dict[str, dict[str, Any]]:
        """The agents in the snapshot, by the task that each has."""
        found = json.loads((self.work / ".devs" / "state_snapshot.json").read_text())
        return {each["task"]["id"]: each for each in found["activeAgents"] if each["task"]}

    def begun(self) -> Child:
        """Start the run, and wait until each agent is at its first call."""
        self.held.touch()
        child = self.begin("run", "plan.json")
        until(lambda: self.done.total() == len(NAMES))
        return child

    def check_once(self) -> None:
        assert self.done == Counter(f"{name}-{n}" for name in NAMES for n in range(1, CALLS + 1))


@pytest.fixture
def gated(tmp_path: Path, forks: Forks) -> Gated:
    found = Gated(tmp_path, forks)
    found.plan()
    return found


def is_paused(gated: Gated) -> None:
    """Request a pause while each agent is at its first call. It takes effect before the second one."""
    words = ["pause", "plan", "--reason", "lunch", "--by", "ann", "--store", str(gated.store)]
    assert run(*words, cwd=gated.folder).code == 0
    gated.held.unlink()

    def has_every_call() -> bool:
        """The call that each agent waits to make is shown. An agent may be between two calls when all have stopped."""
        done = run(*words, "--wait", cwd=gated.folder)
        assert done.code == 0, done.stderr
        return all(f"{name}: Bash: " in done.stdout for name in NAMES)

    until(has_every_call)


@pytest.mark.long
def test_a_pause_from_anywhere_holds_three_agents_and_a_resume_lets_them_continue(gated: Gated) -> None:
    child = gated.begun()
    is_paused(gated)
    before = gated.done
    waits(gated, child)
    assert {each["id"]: each["call"] for each in status(gated)["tasks"]} == dict.fromkeys(NAMES, f"Bash: {COMMAND}")
    for name, agent in gated.snapshot.items():
        assert agent["memory"]["agent"] == "claude"
        assert agent["memory"]["session"]
        assert [call["name"] for call in agent["pendingToolCalls"]] == ["command", "Bash"], name
    assert gated.done == before, "no call began after the pause had taken effect"
    assert "plan continues in process " in gated.run("resume", "plan.json")
    gated.ends(child, 0)
    gated.check_once()
    assert lines(gated.folder, "began") == list(dict.fromkeys(lines(gated.folder, "began"))), "no agent began again"


@pytest.mark.long
def test_after_a_kill_the_agents_continue_their_own_sessions(gated: Gated) -> None:
    child = gated.begun()
    is_paused(gated)
    waits(gated, child)
    gated.kill(child)
    assert "plan completed: 3 done" in gated.run("resume", "plan.json", "--edits", "accept")
    gated.check_once()
    assert sorted(lines(gated.folder, "began")) == sorted([*NAMES, *(f"{name} again" for name in NAMES)])


@pytest.mark.long
def test_an_abort_ends_agents_with_their_hooks_and_tools(gated: Gated) -> None:
    child = gated.begun()
    assert agents_of(gated.work)
    gated.run("pause", "plan.json", "--abort")
    gated.ends(child, 3)
    assert not agents_of(gated.work)


def agents_of(folder: Path) -> list[str]:
    """Return the commands of all processes that work in a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if each.joinpath("cwd").resolve() == folder and each.joinpath("environ").read_bytes().count(
                Processes.TOKEN.encode()
            ):
                found.append(each.joinpath("cmdline").read_bytes().decode())
        except OSError:
            continue
    return found


@pytest.mark.long
def test_a_restricted_call_inside_an_agent_waits_for_a_person(gated: Gated) -> None:
    gated.plan(("ada",), restricted=["Bash"])
    child = gated.begin("run", "plan.json")
    for verdict in (["--approve"], ["--reject", "not today"], ["--approve"]):
        question = asked(gated)
        waits(gated, child, "waiting for an answer")
        answered = run("answer", question, *verdict, "--store", str(gated.store), cwd=gated.folder)
        assert answered.code == 0, answered.stderr
        until(partial(is_answered, gated, question))
    gated.ends(child, 0)
    assert gated.done == Counter(["ada-1", "ada-3"]), "the rejected call was not made, and the task has not failed"


@pytest.mark.long
def test_if_an_agent_dies_while_a_person_is_asked_about_its_call_the_question_is_closed(gated: Gated) -> None:
    gated.plan(("ada",), restricted=["Bash"])
    child = gated.begin("run", "plan.json")
    question = asked(gated)
    waits(gated, child, "waiting for an answer")
    os.kill(agent_of(gated.work), signal.SIGKILL)
    until(partial(is_answered, gated, question))
    gated.ends(child, 1)
    assert asked(gated, wait=False) == ""
    assert "exit code 137" in gated.said(child)


def agent_of(folder: Path) -> int:
    """Return the process of the fake agent that works in a folder."""
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = each.joinpath("cmdline").read_bytes().split(b"\0")
            if each.joinpath("cwd").resolve() == folder and words[1:2] == [fake_agent.__file__.encode()]:
                return int(each.name)
    raise AssertionError("no agent works here")


@pytest.mark.long
def test_a_plan_that_restricts_more_while_its_agent_is_kept_asks_about_the_call_that_waits(gated: Gated) -> None:
    gated.held.touch()
    gated.plan(("ada",), calls=2)
    child = gated.begin("run", "plan.json")
    until(lambda: gated.done.total() == 1)
    gated.run("pause", "plan.json", "--reason", "lunch", "--by", "ann")
    gated.held.unlink()
    waits(gated, child)
    gated.plan(("ada",), calls=2, restricted=["Bash"])
    assert "plan continues in process " in gated.run("resume", "plan.json")
    assert run("answer", asked(gated), "--approve", "--store", str(gated.store), cwd=gated.folder).code == 0
    gated.ends(child, 0)
    assert gated.done == Counter(["ada-1", "ada-2"])


@on_loop
async def test_scripts_that_rest_make_room_and_a_damaged_memory_starts_over(tmp_path: Path) -> None:
    agent = GatedAgent(Todo(id="ada", run="claude", agent="claude"), "key", [], tmp_path / "ada.json")
    own = agent.hears(Report(1, "start", AgentFacts("claude", "s")))
    busy = agent.hears(Report(1, "before", AgentFacts("script", "busy")))
    busy.heard(Report(1, "before", AgentFacts("script", "busy"), call=CallFacts("c", "deploy")), lambda said: None)
    for number in range(3 * MOST):
        agent.hears(Report(1, "spend", AgentFacts("script", f"s{number}")))
    assert len(agent.gates) <= MOST
    assert {own, busy} <= set(agent.gates.values())
    assert agent.known_session() == "s"
    for damaged in ('{"key": "key", "kind": "claude"}', '{"key": "key", "kind": "claude", "session": 1}', "[", ""):
        agent.file.write_text(damaged)
        assert agent.known_session() == ""


def is_answered(gated: Gated, question: str) -> bool:
    return asked(gated, wait=False) != question


def asked(gated: Gated, wait: bool = True) -> str:
    """Return the id of the open question; empty if there is none."""

    async def look() -> str:
        async with Engine(gated.store, drives="none", signals=False) as engine:
            return next((each.id for each in await engine.questions()), "")

    if wait:
        until(lambda: bool(asked(gated, wait=False)))
    return asyncio.run(look())


@pytest.mark.long
def test_a_script_that_an_agent_runs_is_at_the_gate_too(gated: Gated) -> None:
    gate = f"{sys.executable} -m pausepoint gate"
    gated.plan(("ada",), f"{gate} before --name deploy && {gate} spend --name deploy --usd 0.5", calls=1)
    assert "plan completed: 1 done" in gated.run("run", "plan.json")
    [task] = status(gated)["tasks"]
    assert task["spent_usd"] > 0.5, "the agent itself has costs, too"
    sessions = json.loads((gated.work / ".devs" / "agents" / "ada.json").read_text())
    assert sessions["kind"] == "claude"


def test_an_agent_without_hooks_is_refused(gated: Gated) -> None:
    (gated.work / ".claude" / "settings.json").unlink()
    said = gated.run("run", "plan.json", code=2)
    assert "agent: Claude Code has no hooks of the gate in" in said
    assert "Install them: pausepoint gate install claude" in said
    assert not gated.store.exists()


@pytest.mark.long
def test_a_later_agent_without_hooks_is_refused_before_the_run_too(gated: Gated) -> None:
    (gated.work / ".claude" / "settings.json").unlink()
    later = gated.task("ben") | {"needs": ["ada"]}
    write_plan(gated.folder, [{"id": "ada", "run": "touch began"}, later])
    said = gated.run("run", "plan.json", code=2)
    assert "task 'ben': agent: Claude Code has no hooks of the gate in" in said
    assert not (gated.work / "began").exists()
    write_plan(gated.folder, [{"id": "ada", "run": "mkdir tree"}, later | {"folder": "tree", "run": "true"}])
    assert "no hooks" in gated.run("run", "plan.json", code=1), "the folder is made by another task"
    assert (gated.work / "tree").exists()


@pytest.mark.long
def test_a_pause_while_the_only_agent_waits_for_an_approval_saves_its_call(gated: Gated) -> None:
    gated.plan(("ada",), restricted=["Bash"], calls=1)
    child = gated.begin("run", "plan.json")
    question = asked(gated)
    waits(gated, child, "waiting for an answer")
    gated.run("pause", "plan.json", "--reason", "lunch", "--by", "ann")
    until((gated.work / ".devs" / "state_snapshot.json").exists)
    assert [call["name"] for call in gated.snapshot["ada"]["pendingToolCalls"]] == ["command", "Bash"]
    assert run("answer", question, "--approve", "--store", str(gated.store), cwd=gated.folder).code == 0
    assert "plan continues in process " in gated.run("resume", "plan.json")
    gated.ends(child, 0)
    assert gated.done == Counter(["ada-1"])


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ('{"type":"system"}\n{"total_cost_usd":0.25,"usage":{"input_tokens":3,"output_tokens":4}}\n', (0.25, 7)),
        ('{"total_cost_usd":-1}', None),
        ("All done.", None),
        ("", None),
        ('{"total_cost_usd":1}\nmore', None),
    ],
)
def test_the_cost_of_an_agent_is_in_its_result(tmp_path: Path, text: str, cost: tuple[float, int] | None) -> None:
    log = tmp_path / "log.txt"
    log.write_text(text)
    assert cost_in(log) == cost
    assert cost_in(tmp_path / "none.txt") is None
