"""SIGTERM, Ctrl+C and pauses at points of the sample: the session stops cleanly, another process completes it.

The suite takes every n-th point, and `processes` draws from all of them.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from pausepoint import Engine, Status
from pausepoint.model.sessions import PauseMode
from tests.faults.lab import Lab, undisturbed
from tests.faults.verdicts import ended_politely, open_gate, paused
from tests.support.forkserver import ROOT
from tests.support.loop import PATIENCE, on_loop

EVERYWHERE = ["before c", "after c", "step", "op"]


@pytest.mark.long
@pytest.mark.covers("S1.52", "S4.6", "S4.108")
@pytest.mark.parametrize("where", EVERYWHERE)
def test_sigterm_anywhere_ends_with_143_after_the_operation_in_flight(lab: Lab, where: str) -> None:
    reference = undisturbed(lab)
    points = reference.some(where)[::9]
    assert len(points) >= 2
    assert [text for point in points for text in ended_politely(lab, reference, point)] == []


@pytest.mark.long
@pytest.mark.covers("S1.52", "S4.5", "S4.108")
def test_ctrl_c_ends_the_program_after_the_operation_in_flight(lab: Lab) -> None:
    reference = undisturbed(lab)
    points = reference.points[::22]
    assert [text for point in points for text in ended_politely(lab, reference, point, "int")] == []


@pytest.mark.long
@pytest.mark.covers("S1.57", "S1.61")
@pytest.mark.parametrize("mode", ["finish", "abort"])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_pause_asked_for_anywhere_stands_and_resumes_to_the_same_end(lab: Lab, where: str, mode: PauseMode) -> None:
    reference = undisturbed(lab)
    points = [point for point in reference.some(where) if point != "before create"]
    points = points[mode == "abort" :: 8 if "c" in where else 4]  # the other mode gets other points
    assert len(points) >= 4
    assert [text for point in points for text in paused(lab, reference, point, mode)] == []


@pytest.mark.long
@pytest.mark.covers("S1.58", "S4.108")
def test_a_session_that_is_paused_after_every_step_ends_like_an_undisturbed_one(lab: Lab) -> None:
    reference = undisturbed(lab)
    session, pauses, status = lab.new(), 0, Status.CREATED
    while status is not Status.COMPLETED:
        gate = lab.gate(session)
        verb = "resume" if pauses else "start"
        child = lab.drive(session, verb=verb, point="checkpoint 1", action="gate", gate=gate)
        child.hear()
        lab.pause(session)
        open_gate(gate)
        assert child.wait() == 0
        status, pauses = lab.row(session).status, pauses + 1
        assert status in (Status.PAUSED, Status.COMPLETED)
    assert lab.see(session).result == reference.seen.result
    assert sorted(lab.runs(session).labels) == sorted(reference.labels)
    assert pauses == len(lab.do(lab.engine.session(session).checkpoints(limit=None)))


PROGRAM = """
import asyncio, sys
from pathlib import Path
from pausepoint import Engine
from tests.faults.jobs import Waiting, waiting
async def main():
    async with Engine(sys.argv[1], workflows=[waiting]) as engine:
        session = await engine.start(waiting, Waiting(gate=sys.argv[2], runs=sys.argv[3]), session_id="x")
        await session.outcome()
asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.covers("S1.52")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_program_of_its_own_ends_as_the_system_expects(lab: Lab, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", PROGRAM, lab.path, lab.file("x", "never"), lab.file("x", "runs")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert b"standing" in program.stdout.readline()
        program.send_signal(number)
        _, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == code
    assert (b"KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert lab.row("x").status is Status.READY or lab.row("x").status is Status.CREATED


@pytest.mark.long
@pytest.mark.parametrize(
    ("twin", "symptom"), [("deaf to signals", "ended with -15"), ("cuts operations", "begun, but not finished")]
)
def test_the_harness_catches_an_engine_that_ends_badly(lab: Lab, twin: str, symptom: str) -> None:
    reference = undisturbed(lab)
    points = reference.some("op")[2:8]
    caught = [text for point in points for text in ended_politely(lab, reference, point, twin=twin)]
    assert any(symptom in text for text in caught)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["finish", "abort"])
def test_the_harness_catches_an_engine_that_overlooks_a_pause(lab: Lab, mode: PauseMode) -> None:
    caught = paused(lab, undisturbed(lab), "op phrase:body:1", mode, "blind to pauses")
    assert any("asked to pause" in text for text in caught)


@on_loop
async def test_engines_that_are_closed_in_any_order_leave_the_signals_as_they_were() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    first, second, third = (Engine(":memory:") for _ in range(3))
    for engine in (first, second, third):
        await engine.__aenter__()
    taken = signal.getsignal(signal.SIGTERM)
    await first.close()
    await second.close()
    assert signal.getsignal(signal.SIGTERM) == taken  # the handler of the engine that is still open
    await third.close()
    assert {number: signal.getsignal(number) for number in before} == before
