"""Random programs give the results of a reference interpreter, whatever crashes, pauses and holds happen to them.

``python -m tests.faults.random_programs --seconds 600`` runs many more of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pausepoint.engine import pauses
from pausepoint.engine.parts import Parts
from pausepoint.errors import AlreadyRunning
from pausepoint.model.sessions import SessionRow
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.keep import Keeper
from pausepoint.runtime.visit import Operation, Visit
from tests.faults.interpreter.faults import LONG, SHORT, Fault, Trial, draw
from tests.faults.interpreter.program import (
    Ask,
    Body,
    Box,
    Call,
    Do,
    Fork,
    Map,
    Nest,
    Program,
    Receive,
    Repeat,
    Sleep,
    StepSpec,
    inside,
    render,
)
from tests.faults.interpreter.reference import Reference
from tests.faults.interpreter.shrink import goes_wrong, shrink
from tests.faults.interpreter.trial import Report, run
from tests.faults.random_programs import describe
from tests.support.loop import PATIENCE

SMALL = 40
"""The most steps and operations of a program in the sample."""

pytestmark = pytest.mark.no_always_replay("compares what ran with what a step does on its own")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # engines that die complain


def program(*bodies: Body, **options: Any) -> Program:
    return Program("root0", tuple(StepSpec(body, **options) for body in bodies))


def trial(*bodies: Body, faults: tuple[Fault, ...] = (), hold: float = LONG, gentle: bool = False) -> Trial:
    return Trial((program(*bodies),), (), faults, hold, 2, gentle)


def dos(count: int) -> Body:
    return tuple(Do(f"d{number}") for number in range(count))


def right(what: Trial, seed: str = "") -> Counter[str]:
    """Run a trial that must go right, and return what happened in it."""
    report = run(what, seed)
    assert not report.wrong, describe(seed, *shrink(what, report, seed, 20))
    return report.counts


@pytest.mark.long
def test_a_sample_of_random_programs_gives_the_results_of_the_reference() -> None:
    tally: Counter[str] = Counter()
    for number in range(14):
        seed = f"sample:{number}"
        tally += right(draw(seed, SMALL), seed)
    for fault in ("crashes", "closes", "steals", "pauses", "pauses of everything", "pauses awaited", "held in place"):
        assert tally[fault], (fault, tally)
    assert not tally["lost"] + tally["doubled"] + tally["begun while paused"]


def test_every_kind_of_statement_gives_the_result_of_the_reference() -> None:
    child = Program("child0", (StepSpec((Do("c0"), Receive(), Do("c1", fails=1))),))
    body: Body = (
        *dos(2), Nest("n", (Do("n0"), Nest("n1", (Do("n2", keyed=True),)))), Map("m", 3, 2, (Do("m0"),), (1,)),
        Fork((dos(1), (Do("f0"), Sleep()), (Do("f1", fails=1),))), Repeat(2, (Do("r0", keyed=True), Do("r1"))),
        Call("c", 0), Ask("q"), Receive(), Box("b", (Do("b0"), Do("b1"))), Map("t", 2, 1, (), (), 1),
    )  # fmt: skip
    counts = right(replace(trial(body), children=(child,)))
    assert counts["answers"] == 1
    assert counts["messages"] == 2
    assert counts["sessions"] == 2


def test_a_hold_that_is_withdrawn_in_time_keeps_the_resource_open() -> None:
    pauses = tuple(Fault(at, "pause", wait=True, resumed_elsewhere=True) for at in (3, 5))
    counts = right(trial((Box("b", dos(6)),), faults=pauses, gentle=True))
    assert counts["held in place"] == counts["continued in place"] == 2
    assert counts["boxes"] == 1


def test_a_hold_that_expires_loses_nothing() -> None:
    faults = (Fault(3, "pause", "outlast", wait=True), Fault(6, "everything", "outlast", wait=True))
    counts = right(trial((Box("b", dos(6)),), faults=faults, hold=SHORT))
    assert counts["held in place"] == counts["holds that expired"] == 2
    assert not counts["continued in place"]


def test_a_keeper_that_dies_loses_nothing() -> None:
    faults = (Fault(3, "pause", "crash", wait=True), Fault(8, "crash"), Fault(10, "doom", writes=1, after=True))
    counts = right(trial((Box("b", dos(6)),), faults=faults))
    assert counts["crashes of a keeper"] == 1
    assert counts["crashes"] == 3


# broken engines


def wrong(what: Trial, *words: str) -> None:
    """Check that a trial goes wrong, and that the report says how."""
    report = goes_wrong(what, "broken", patience=PATIENCE)
    assert report is not None
    assert any(word in text for text in report.wrong for word in words), report.wrong


CRASHED = trial((*dos(3), Repeat(3, (Do("r"),)), *dos(2)), faults=(Fault(6, "crash"),))
PAUSED = trial((Box("b", dos(6)),), faults=(Fault(3, "pause", wait=True),), gentle=True)


def test_an_engine_that_forgets_a_committed_operation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Visit.remembered
    monkeypatch.setattr(
        Visit, "remembered", lambda self, operation: None if operation.name == "d1" else known(self, operation)
    )
    wrong(CRASHED, "ran again although it was committed")


def test_an_engine_that_does_not_store_operations_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def remember(self: Drive, body: Any, blobs: Any, **facts: Any) -> None:
        return None

    monkeypatch.setattr(Drive, "remember", remember)
    wrong(CRASHED, "operations: expected")


def test_an_engine_that_replays_in_the_wrong_order_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def latest(self: Visit, operation: Operation) -> Any:
        known = [body for body in self.host.line.operations.values() if body.name == operation.name]
        return known[-1] if known else None

    monkeypatch.setattr(Visit, "remembered", latest)
    wrong(CRASHED, "states: expected")


def test_an_engine_that_does_not_hold_steps_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keeper, "_may_keep", lambda self: False)
    wrong(PAUSED, "boxes: expected")


def test_an_engine_that_does_not_wait_for_a_standstill_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def impatient(*args: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(pauses, "standstill", impatient)
    long = (Fork((dos(4), tuple(Do(f"e{number}", ticks=3) for number in range(4)))),)
    wrong(replace(PAUSED, roots=(program(long, pause="step"),)), "began while it was paused")


def test_an_engine_whose_holds_end_with_a_resume_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def continues(self: Keeper) -> bool:
        await asyncio.sleep(0.01)
        await self.held.store.unpause(self.held.session_id, None, self.held.clock.now())
        return await self._claim_again()

    monkeypatch.setattr(Keeper, "_resumed_in_place", continues)
    wrong(replace(PAUSED, faults=(Fault(3, "pause", "outlast", wait=True),), hold=SHORT), "began while it was paused")


def test_an_engine_that_withdraws_a_pause_when_it_picks_a_session_up_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Parts.__init__

    def wired(parts: Parts, *given: Any) -> None:
        async def resumes(row: SessionRow) -> None:
            with suppress(AlreadyRunning):
                await parts.control.resume(row.session_id)

        wire(parts, *given)
        monkeypatch.setattr(parts.pickup, "drive_if_due", resumes)

    monkeypatch.setattr(Parts, "__init__", wired)
    asks = tuple(Ask(f"q{number}") for number in range(6))
    pauses = tuple(Fault(at, "pause", wait=True, lasts=5) for at in (2, 4, 6, 8))
    wrong(trial((Fork((asks, dos(10)), group=False),), faults=pauses), "began while it was paused")


# shortening


def test_a_trial_that_goes_wrong_is_shortened_and_printed() -> None:
    def fails_with_a_map(trial: Trial, seed: str, patience: float) -> Report:
        maps = [
            each for root in trial.roots for spec in root.steps for each in inside(spec.body) if isinstance(each, Map)
        ]
        return Report(wrong=["there is a map"] if maps else [])

    long = next(
        each for each in (draw(f"long:{number}") for number in range(100)) if fails_with_a_map(each, "", 1).wrong
    )
    short, report = shrink(long, Report(wrong=["there is a map"]), "", once=fails_with_a_map)
    [root] = short.roots
    assert [[type(each) for each in inside(spec.body)] for spec in root.steps] == [[Map]]
    assert not short.faults
    assert "Map(label=" in describe("1:2", short, report)


def test_the_same_seed_draws_the_same_trial() -> None:
    assert draw("7:7") == draw("7:7") != draw("7:8")
    assert render(program(dos(1))).splitlines()[-1] == (
        "    Do(label='d0', keyed=False, ticks=0, fails=0, spends=False)"
    )


def test_the_reference_interpreter_is_a_function_of_the_program() -> None:
    one, other = Reference(()), Reference(())
    assert (
        one.run(program(dos(3)), "s0") == other.run(program(dos(3)), "s0") != Reference(()).run(program(dos(2)), "s0")
    )
    assert one.expected == other.expected
    assert one.expected.operations.total() == 3
