"""`gate before` and `gate spend`: what scripts and git hooks get from the gate."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pausepoint.gate import GateCaller, GatePlace, Verdict, find_place, socket_path
from pausepoint.integrations import gate as hook
from tests.cli import documents
from tests.cli.kit import Done
from tests.cli.zoo import here
from tests.gate.fake_server import FakeGate, serving
from tests.gate.kit import Project
from tests.support.loop import PATIENCE, on_loop
from tests.support.waits import async_until

WAIT = {"do": "wait", "why": "paused: lunch (ann)"}
RUN, HOLD = {"do": "run"}, {"do": "hold"}


@pytest.fixture
def installed(alone: Path) -> Path:
    assert here(alone, "gate", "install", "claude", "--yes").code == 0
    return alone


def asked(project: Path, *words: str) -> Done:
    done = here(project, "gate", "before", "--name", "deploy", *words)
    if "--json" in words:
        documents.check("gate", done.stdout)
    return done


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ([RUN], 0, ""),
        ([WAIT, WAIT, {"do": "run", "approved": True}], 0, "Waiting: paused: lunch (ann)\n"),
        ([{"do": "refuse", "reason": "not on\n Fridays"}], 1, "Refused: not on Fridays\n"),
        ([{"do": "dance"}], 75, "Try again later: the gate answers 'dance', which is not known here\n"),
    ],
)
def test_the_answer_is_the_exit_code(installed: Path, answers: list[Any], code: int, said: str) -> None:
    with serving(socket_path(installed), *answers) as server:
        done = asked(installed, "--arg", "env=prod", "--arg", "note=a=b")
    assert (done.code, done.stdout, done.stderr) == (code, "", said)
    message = server.asked[0]
    assert (message["v"], message["token"], message["event"]) == (1, None, "before")
    assert message["call"]["name"] == "deploy"
    assert message["call"]["arguments"] == {"env": "prod", "note": "a=b"}
    assert (message["agent"]["kind"], message["agent"]["session"]) == ("script", "deploy")
    assert server.events() == (["before", "stop"] if code == 0 else ["before"]), "an action does not stay in flight"


@pytest.mark.long
def test_a_wait_that_is_too_long_ends_with_75(installed: Path) -> None:
    with serving(socket_path(installed), WAIT, HOLD):
        done = asked(installed, "--timeout", "0", "--json")
    assert done.code == 75
    assert json.loads(done.stdout) == {"do": "later", "reason": "paused: lunch (ann)", "approved": False}


@pytest.mark.long
def test_a_server_that_says_nothing_is_not_waited_for_without_end(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "ANSWERS_WITHIN", 0.0)
    with serving(socket_path(installed), HOLD):
        done = asked(installed, "--timeout", "0")
    assert (done.code, done.stderr) == (75, "Try again later: the gate does not answer\n")


@on_loop
async def test_a_script_waits_at_a_real_gate_and_a_pause_does_not_wait_for_its_action(project: Project) -> None:
    place = find_place(project.folder, {})
    assert place is not None
    caller, reasons = GateCaller(place, "deploy"), list[str]()

    def ask() -> asyncio.Task[Verdict]:
        return asyncio.create_task(asyncio.to_thread(caller.before, "deploy", {"env": "prod"}, None, reasons.append))

    async with project.served("Bash", "deploy") as (engine, agents):
        await engine.pause_all(reason="lunch", by="ann", wait=True)
        waits = ask()
        await async_until(lambda: bool(reasons))
        assert reasons == ["paused: lunch (by ann)"]
        assert [call.said for gate in agents for call in gate.waiting] == ["deploy: prod"]
        await engine.lift_pause()

        async def is_asked() -> bool:
            return len(await engine.questions()) == 1

        await async_until(is_asked)
        assert not waits.done()
        [question] = await engine.questions()
        await engine.answer(question.id, {"approved": True}, by="ann")
        assert await waits == Verdict("run", approved=True)
        await engine.session("script-deploy").pause(
            wait=True
        )  # returns, although nobody knows whether the action has ended
        assert not [gate for gate in agents if gate.calls]
        await engine.session("script-deploy").resume()
        assert await asyncio.to_thread(caller.spend, 0.5, 9)


def test_without_a_server_the_settings_decide(installed: Path) -> None:
    done = asked(installed)
    assert (done.code, done.stderr[:30]) == (0, "Not asked: no server answers a")
    flag = installed / ".pausepoint" / "pausepoint.db-paused"
    flag.write_text("{}")
    paused = asked(installed, "--timeout", "0")
    assert (paused.code, paused.stderr) == (
        75,
        "Waiting: everything is paused\nTry again later: everything is paused\n",
    )
    flag.unlink()
    here(installed, "gate", "install", "claude", "--yes", "--closed")
    assert asked(installed).code == 75


@pytest.mark.long
def test_a_script_waits_while_the_flag_is_there_and_runs_when_it_goes(installed: Path) -> None:
    flag = installed / ".pausepoint" / "pausepoint.db-paused"
    flag.write_text("{}")
    waits, found = threading.Event(), list[Verdict]()
    caller = GateCaller(GatePlace(str(socket_path(installed)), str(flag)), "deploy")
    thread = threading.Thread(target=lambda: found.append(caller.before("deploy", {}, None, lambda _: waits.set())))
    thread.start()
    assert waits.wait(PATIENCE)
    assert not found
    flag.unlink()
    thread.join(PATIENCE)
    assert [each.do for each in found] == ["run"]


@pytest.mark.long
def test_a_server_that_restarts_is_asked_again(installed: Path) -> None:
    path = socket_path(installed)
    reasons, found = list[str](), list[Verdict]()
    caller = GateCaller(GatePlace(str(path)), "deploy")
    thread = threading.Thread(target=lambda: found.append(caller.before("deploy", {}, None, reasons.append)))
    with serving(path, WAIT, HOLD):
        thread.start()
        began = time.monotonic()
        while not reasons and time.monotonic() - began < PATIENCE:
            time.sleep(0.01)
    assert reasons
    with serving(path, RUN):
        thread.join(PATIENCE)
    assert found == [Verdict("run")]


def test_a_server_that_stays_away_counts_as_lost(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "PATIENCE", 0.0)
    with serving(socket_path(installed), WAIT):  # it ends the connection without a last word
        done = asked(installed)
    assert done.code == 0
    assert "Not asked: no server answers" in done.stderr


@pytest.mark.parametrize("said", ["x" * 10, "[1]", "null", "\x00"])
def test_a_server_that_talks_nonsense_counts_as_lost(
    installed: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(self: FakeGate, wire: Any) -> None:
        with wire:
            wire.recv(10_000)
            wire.sendall(f"{said}\n".encode())

    monkeypatch.setattr(FakeGate, "_answer", answer)
    monkeypatch.setattr(hook, "PATIENCE", 0.0)
    here(installed, "gate", "install", "claude", "--yes", "--closed")
    with serving(socket_path(installed)):
        assert asked(installed).code == 75


def test_the_environment_names_the_gate_of_a_command(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = socket_path(installed).with_name("other.sock")
    monkeypatch.setenv("PAUSEPOINT_GATE", str(other))
    monkeypatch.setenv("PAUSEPOINT_GATE_TOKEN", "secret")
    assert asked(installed).code == 75, "the program that set it is gone, so the default is closed"
    with serving(other, RUN) as server:
        assert asked(installed).code == 0
    assert server.asked[0]["token"] == "secret"
    monkeypatch.setenv("PAUSEPOINT_GATE_ON_LOSS", "open")
    assert asked(installed).code == 0


def test_without_a_gate_a_script_runs_and_cannot_report(alone: Path) -> None:
    done = asked(alone)
    assert (done.code, done.stderr) == (0, "Not asked: this folder has no gate\n")
    missing = here(alone, "gate", "spend", "--usd", "1")
    assert missing.code == 4
    assert "`pausepoint gate install claude`" in missing.stderr


def test_a_cost_is_reported(installed: Path) -> None:
    with serving(socket_path(installed)) as server:
        done = here(installed, "gate", "spend", "--usd", "0.12", "--tokens", "900", "--json")
    assert (done.code, json.loads(done.stdout)) == (0, {"recorded": True})
    documents.check("gate", done.stdout)
    (message,) = server.asked
    assert (message["event"], message["usd"], message["tokens"]) == ("spend", 0.12, 900)
    lost = here(installed, "gate", "spend", "--usd", "0.12")
    assert (lost.code, lost.stderr[:24]) == (75, "Not recorded: no server ")
    assert here(installed, "gate", "spend").code == 2


@pytest.mark.parametrize("words", [["--arg", "prod"], ["--arg", "=x"], ["--timeout", "-1"]])
def test_a_wrong_option_is_refused(installed: Path, words: list[str]) -> None:
    assert asked(installed, *words).code == 2


def test_arguments_that_are_too_large_are_refused(installed: Path) -> None:
    done = asked(installed, "--arg", f"text={'x' * 2**20}")
    assert done.code == 5
    assert "too large for the gate" in done.stderr


def test_a_broken_file_of_the_gate_is_named(installed: Path) -> None:
    (installed / ".pausepoint" / "gate.json").write_text("[1]")
    done = asked(installed)
    assert done.code == 5
    assert f"{installed}/.pausepoint/gate.json is not valid: " in done.stderr
    assert "Delete the file, then install the gate again." in done.stderr


@on_loop
async def test_the_end_of_an_agent_that_the_gate_does_not_know_makes_no_session(project: Project) -> None:
    """`gate check` reports such an end twice."""
    async with project.served() as (engine, agents):
        place = GatePlace(str(project.socket), f"{project.store}-paused", "open")
        assert await asyncio.to_thread(GateCaller(place, "check", "check").end) is not None
        await async_until(lambda: not list(agents))
        assert not await engine.sessions()


def test_a_pause_of_everything_says_that_nothing_tells_about_agents_without_a_server(installed: Path) -> None:
    """Its hooks stop the agents, and its wait cannot include them."""
    done = here(installed, "pause", "--all", "--wait")
    assert (done.code, done.stdout) == (0, "There is no session to pause.\n")
    assert "stop before their next tool call" in done.stderr
    assert "pausepoint gate serve" in done.stderr
    with serving(socket_path(installed), {"do": "ok"}, {"do": "ok"}):
        assert "gate serve" not in here(installed, "pause", "--all", "--wait").stderr
