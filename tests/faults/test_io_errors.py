"""A disk that is full, broken or lying: callers get an error, and no acknowledged write is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.errors import DamagedRecord, StoreUnavailable, UnknownSession
from pausepoint.stores.sqlite import SqliteStore
from tests.faults import programs
from tests.faults.bench_server import Server
from tests.faults.bit_flips import PROVED, wrong_answers
from tests.faults.disk_trouble import Told
from tests.faults.programs import PROGRAMS, SESSION, Clock
from tests.faults.vfs import Fail, FaultVFS, Touch
from tests.support.children import outside_sql
from tests.support.loop import on_loop


@pytest.mark.long
@pytest.mark.covers("S1.19")
@pytest.mark.parametrize("trouble", ["full", "io"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "ever after"])
def test_a_disk_that_refuses_a_write_is_reported_and_loses_nothing(
    bench_server: Server, trouble: str, once: bool
) -> None:
    bench = bench_server.bench("short")
    touches = bench.touches()
    last_commit = max(touch.index for touch in touches if (touch.kind, touch.file) == ("write", "-wal")) + 1
    wrong = {}
    phases, paid = set(), False
    for touch in touches:
        if touch.index % 7 and touch.index < last_commit - 3:  # a sample, to save time
            continue
        if trouble == "full" and touch.kind != "write":
            continue
        # In every second trial the disk recovers and the same engine continues. Otherwise the engine closes first.
        told, verdict = bench.meet(touch.index, trouble, once, touch.index % 2 == 0)
        phases.add(told.phase)
        paid |= told.paid
        if not told.fired or verdict or complaints(told) or not reported(told, touch, last_commit):
            wrong[touch.index] = (told, verdict)
    assert wrong == {}
    assert phases >= {"", "run"}
    assert "close" in phases or paid


def reported(told: Told, touch: Touch, last_commit: int) -> bool:
    """Return whether the caller got the right error, unless no error was due.

    An engine that finds trouble while it opens reports it, and checks again before it refuses anything. Holds are
    released at the expense of the ballast. After the sync of the last commit, only the WAL is checkpointed; a failure
    there loses nothing.
    """
    right = {told.error, told.closing} <= {"StoreReadOnly", ""}
    return right and (bool(told.error) or told.seen or told.paid or touch.index > last_commit)


def complaints(told: Told) -> bool:
    return bool(told.reading or told.refused or told.going_on)


@pytest.mark.long
def test_a_store_that_swallows_the_error_is_caught(bench_server: Server) -> None:
    bench = bench_server.bench("short", "FULL", "swallows")
    verdicts = (bench.meet(touch.index, "full", True, False)[1] for touch in bench.touches() if touch.kind == "write")
    assert any("lost" in complaint for verdict in verdicts for complaint in verdict)


@pytest.mark.long
@pytest.mark.covers("S1.19")
def test_what_is_acknowledged_after_a_failed_sync_is_on_the_disk(bench_server: Server) -> None:
    bench = bench_server.bench("folding")
    syncs = [touch.index for touch in bench.touches() if touch.kind == "sync"]
    results = {index: _met(bench, index) for index in syncs}
    assert {index: wrong for index, (_, wrong) in results.items() if wrong} == {}
    assert len([index for index, (fired, _) in results.items() if not fired]) <= 1


def _met(bench: Any, index: int) -> tuple[int, list[str]]:
    """Lose a sync and return the result. Runs may differ by a write, so a run that missed the sync is repeated."""
    found: tuple[int, list[str]] = (0, [])
    for _ in range(3):
        found = bench.lose_sync(index)
        if found != (0, []):
            break
    return found


@pytest.mark.long
def test_a_store_that_asks_for_the_same_sync_again_is_caught(bench_server: Server) -> None:
    bench = bench_server.bench("folding")
    syncs = [touch.index for touch in bench.touches() if touch.kind == "sync"]
    assert any(bench.lose_sync(index, True)[1] for index in syncs)


@on_loop
async def test_outcome_tells_every_handle_until_the_session_is_resumed(tmp_path: Path) -> None:
    clock = Clock(1)
    fail = Fail(0, "full", once=False)
    fail.heal()
    vfs = FaultVFS("outcome", fail)
    store = SqliteStore(tmp_path / "store.db", clock=clock, vfs="outcome")
    async with Engine(store, clock=clock, signals=False) as engine:
        programs.NOW.ran = lambda label: setattr(fail, "healed", False)  # the disk is full from the first step on
        session = await engine.start(PROGRAMS["short"].workflow, session_id=SESSION, topic="squid")
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await session.outcome()
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await engine.session(SESSION).outcome()
        assert (await session.state()).draft == ""
        fail.heal()
        programs.NOW.ran = lambda label: None
        await session.resume()
        assert (await session.outcome()).state.draft == "a line on squid"
    assert fail.fired
    vfs.unregister()


@pytest.mark.long
def test_a_flipped_bit_is_an_error_or_makes_no_difference(bench_server: Server) -> None:
    flips = bench_server.bench("loop").flip(1, 400)
    assert wrong_answers(flips) == []
    noticed = [flip for flip in flips if any(flip.answers[read] != "right" for read in PROVED)]
    assert len(noticed) >= 100


@pytest.mark.long
def test_a_flipped_bit_in_the_session_row_is_an_error_or_makes_no_difference_to_its_history(
    bench_server: Server,
) -> None:
    flips = bench_server.bench("loop").flip(2, 100, b"completedfinish")
    assert wrong_answers(flips) == []


@pytest.mark.long
@pytest.mark.parametrize("within", [b"s1looping", b"completedfinish"], ids=["what it was given", "where it stands"])
def test_a_flipped_bit_in_the_session_row_never_shows_in_its_info(bench_server: Server, within: bytes) -> None:
    flips = bench_server.bench("loop").flip(3, 60, within)
    assert wrong_answers(flips, tuple(flips[0].answers)) == []
    assert any(flip.answers["info"] == "DamagedRecord" for flip in flips)


@on_loop
async def test_a_flipped_bit_in_the_index_of_ids_hides_no_session_and_the_named_way_out_finds_it(
    tmp_path: Path,
) -> None:
    path, flow = tmp_path / "flip.db", PROGRAMS["short"].workflow
    async with Engine(path, signals=False) as engine:
        await (await engine.start(flow, session_id="octopus", topic="squid")).outcome()
    raw = bytearray(path.read_bytes())
    assert raw.count(b"octopus") >= 2  # the row, the index, and what the log says
    raw[raw.rindex(b"octopus") + 3] ^= 1
    path.write_bytes(raw)
    async with Engine(path, workflows=[flow], signals=False) as engine:
        for call in (lambda id: engine.session(id).info(), lambda id: engine.session(id).state(), engine.find,
                     lambda id: engine.session(id).pause(), lambda id: engine.session(id).resume(),
                     lambda id: engine.session(id).remove()):  # fmt: skip
            with pytest.raises(DamagedRecord, match=r"'octopus' exists, but the index .* REINDEX"):
                await call("octopus")
        with pytest.raises(UnknownSession):
            await engine.session("otter").info()
        assert (await engine.verify()).problems
    outside_sql(path, "REINDEX")
    async with Engine(path, workflows=[flow], signals=False) as engine:
        assert (await engine.session("octopus").info()).status == "completed"
        assert (await engine.verify()).problems == []
