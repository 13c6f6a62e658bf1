"""Chunked work: what is done stays done, what fails is known and tried again, and other chunks never pass for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, File, MapFailed, Retry, Session, Status, Workflow, step
from pausepoint.errors import FileRefused, UnknownFile
from pausepoint.model import Chunk, Chunked, ChunkState
from pausepoint.testing import ManualClock
from tests.files.kit import Desk, collect, first_words, open_engine
from tests.support.children import run_child
from tests.support.loop import on_loop

NOTHING_TWICE = Retry(attempts=1)


class RateLimit(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__("429 rate limit")
        self.retry_after = seconds


class Work:
    """Work on chunks that counts, and fails as it is told: how many times, with what."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.fails: dict[int, list[Exception]] = {}

    async def __call__(self, chunk: Chunk) -> str:
        self.calls[chunk.index] += 1
        await asyncio.sleep(0)
        if self.fails.get(chunk.index):
            raise self.fails[chunk.index].pop(0)
        return f"{chunk.index}/{chunk.params['size']}"


class Ingest(BaseModel):
    size: int = 100
    total: int = 10
    registry: dict[str, File] = {}
    state: ChunkState | None = None
    topics: list[str] = []


def workflow(work: Any, **options: Any) -> Workflow[Ingest]:
    """Take a file in, then work on its chunks."""

    @step(writes=["state", "topics"])
    async def ingest(size: int, total: int, registry: dict[str, File], ctx: Context) -> dict[str, Any]:
        [file] = registry.values()
        found: Chunked[str] = await ctx.files.chunks(file, work, total, **options, size=size)
        return {"state": found.state, "topics": list(found.done.values())}

    return Workflow("ingest", state=Ingest, steps=[collect, ingest])


async def progress(session: Session[Ingest]) -> ChunkState:
    [file] = await session.files.list()
    return await session.files.progress(file.file_id)


@on_loop
async def test_every_chunk_is_worked_on_once_and_the_results_are_in_order(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "hold.db") as engine:
        outcome = await (await engine.start(workflow(first_words), size=7, total=4)).outcome()
        assert outcome.state.topics == ["0:line 0", "1:line 1", "2:line 2", "3:line 3"]
        assert outcome.state.state == ChunkState(
            chunking={"size": 7, "total_chunks": 4}, processed_chunks=4, failed_chunks=[], status="complete"
        )


@pytest.mark.covers("S3.25", "S3.26", "S3.27")
@on_loop
async def test_progress_is_true_at_every_moment_also_for_who_looks_from_elsewhere(tmp_path: Path) -> None:
    seen: list[ChunkState] = []
    sessions: list[Session[Ingest]] = []

    async def watched(chunk: Chunk) -> str:
        seen.append(await progress(sessions[0]))
        if chunk.index in (3, 7):
            raise ValueError(f"chunk {chunk.index} is odd")
        return str(chunk.index)

    async with open_engine(tmp_path / "hold.db") as engine, open_engine(tmp_path / "hold.db") as other:
        flow = workflow(watched, concurrency=1, retry=NOTHING_TWICE)
        await engine.start(flow, session_id="s1", paused=True)
        sessions.append(other.session("s1"))
        outcome = await (await engine.session("s1").resume()).outcome()
        assert [state.processed_chunks for state in seen] == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7]
        assert [state.failed_chunks for state in seen] == [[]] * 4 + [[3]] * 4 + [[3, 7]] * 2
        assert [state.status for state in seen] == ["pending"] + ["partial"] * 9
        assert [state.last_error for state in seen[3:5]] == [None, "chunk 3 is odd"]
        last = await progress(sessions[0])
        assert outcome.state.state == last
        assert (last.processed_chunks, last.failed_chunks, last.status) == (8, [3, 7], "partial")
        assert last.last_error == "chunk 7 is odd"
        printed = run_child(
            "async with Engine(args[0]) as engine:\n"
            "    [file] = await engine.session('s1').files.list()\n"
            "    say((await engine.session('s1').files.progress(file.file_id)).model_dump_json())",
            tmp_path / "hold.db",
        )
        assert ChunkState.model_validate_json(printed) == last


@pytest.mark.covers("S3.77", "S3.83")
@on_loop
async def test_a_resume_tries_only_what_failed_and_then_the_file_is_complete(tmp_path: Path) -> None:
    work = Work()
    work.fails = {2: [ValueError("torn page")], 5: [ValueError("wet page")]}
    async with open_engine(tmp_path / "hold.db") as engine:
        session = await engine.start(workflow(work, on_error="raise", retry=NOTHING_TWICE))
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.type == MapFailed.__name__
        state = await progress(session)
        assert (state.processed_chunks, state.failed_chunks, state.status) == (8, [2, 5], "partial")
        outcome = await (await session.resume()).outcome()
        assert outcome.status is Status.COMPLETED
        assert work.calls == Counter(range(10)) + Counter([2, 5])
        state = await progress(session)
        assert (state.processed_chunks, state.failed_chunks) == (10, [])
        assert (state.status, state.last_error) == ("complete", None)
        assert outcome.state.topics == [f"{number}/100" for number in range(10)]


@pytest.mark.covers("S3.79", "S3.82")
@on_loop
async def test_done_again_the_rest_is_added_to_what_was_there_and_nothing_is_doubled(tmp_path: Path) -> None:
    work = Work()
    work.fails = {4: [ValueError("torn page")]}
    async with open_engine(tmp_path / "hold.db") as engine:
        session = await engine.start(workflow(work, retry=NOTHING_TWICE))
        outcome = await session.outcome()
        assert outcome.state.state is not None
        assert (outcome.state.state.status, len(outcome.state.topics)) == ("partial", 9)
        await session.rewind("ingest", reuse=True)
        assert (await progress(session)).processed_chunks == 9
        outcome = await (await session.resume()).outcome()
        assert work.calls == Counter(range(10)) + Counter([4])
        assert outcome.state.topics == [f"{number}/100" for number in range(10)]
        await session.rewind("ingest")
        assert (await progress(session)).status == "pending", "all of it is to be done again"
        outcome = await (await session.resume()).outcome()
        assert outcome.state.topics == [f"{number}/100" for number in range(10)]
        assert min(work.calls.values()) == 2


@pytest.mark.covers("S3.78")
@on_loop
async def test_chunks_of_another_size_never_pass_for_these(tmp_path: Path) -> None:
    worked: set[tuple[int, int]] = set()

    async def work(chunk: Chunk) -> str:
        worked.add((chunk.params["size"], chunk.index))
        if (chunk.params["size"], chunk.index) == (100, 9):
            raise ValueError("torn page")
        return f"{chunk.index}/{chunk.params['size']}"

    async with open_engine(tmp_path / "hold.db") as engine:
        session = await engine.start(workflow(work, on_error="raise", retry=NOTHING_TWICE))
        assert (await session.outcome()).status is Status.FAILED
        await session.edit(size=50)
        outcome = await (await session.resume()).outcome()
        assert outcome.state.topics == [f"{number}/50" for number in range(10)]
        assert worked == {(size, number) for size in (100, 50) for number in range(10)}
        assert (await progress(session)).chunking == {"size": 50, "total_chunks": 10}


@on_loop
async def test_two_works_on_one_file_do_not_mix_their_figures(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def slow(chunk: Chunk) -> int:
        await started.wait()
        return chunk.index

    async def quick(chunk: Chunk) -> int:
        if chunk.index == 1:
            raise ValueError("no")
        started.set()
        return -chunk.index

    @step(writes="found")
    async def both(registry: dict[str, File], ctx: Context) -> list[str]:
        [file] = registry
        first = asyncio.create_task(ctx.files.chunks(file, slow, 5, retry=NOTHING_TWICE))
        await asyncio.sleep(0)
        second = await ctx.files.chunks(file, quick, 3, retry=NOTHING_TWICE)
        return [(await first).state.model_dump_json(), second.state.model_dump_json()]

    async with open_engine(tmp_path / "hold.db") as engine:
        outcome = await (await engine.start(Workflow("both", state=Desk, steps=[collect, both]))).outcome()
        assert outcome.failure is None
        first, second = map(ChunkState.model_validate_json, outcome.state.found)
        assert (first.processed_chunks, first.status) == (5, "complete")
        assert (second.processed_chunks, second.failed_chunks) == (2, [1])


# rate limits


@pytest.mark.covers("S3.84")
@on_loop
async def test_a_rate_limit_is_waited_out_while_the_session_sleeps(tmp_path: Path) -> None:
    clock, work = ManualClock(), Work()
    work.fails = {0: [RateLimit(3600), RateLimit(60)]}
    async with open_engine(tmp_path / "hold.db", clock=clock) as engine:
        session = await engine.start(workflow(work, concurrency=2))
        await _asleep(session)
        assert work.calls == Counter([0, 1]), "the others wait as well: the limit is not this chunk's alone"
        assert (await progress(session)).last_error == "429 rate limit"
        await session.resume(code="accept")  # for another reason: it drives the session, and the limit is still there
        await _asleep(session)
        clock.advance(3599)
        await _asleep(session)
        assert work.calls == Counter([0, 1])
        clock.advance(2)
        await _asleep(session, calls=(work, 2))
        clock.advance(61)
        outcome = await session.outcome()
        assert outcome.state.state is not None
        assert outcome.state.state.status == "complete"
        assert work.calls == Counter(range(10)) + Counter([0, 0])


async def _asleep(session: Session[Any], calls: tuple[Work, int] | None = None) -> None:
    """Until nobody drives it and it waits for a time."""
    while (await session.status()) is not Status.SLEEPING or (calls and calls[0].calls[0] < calls[1]):
        await asyncio.sleep(0.001)


@pytest.mark.covers("S3.84")
@on_loop
async def test_a_limit_that_does_not_end_ends_in_partial_and_the_session_goes_on(tmp_path: Path) -> None:
    clock, work = ManualClock(auto=True), Work()
    work.fails = {3: [RateLimit(30) for _ in range(99)]}
    async with open_engine(tmp_path / "hold.db", clock=clock) as engine:
        session = await engine.start(workflow(work, retry=4))
        outcome = await session.outcome()
        assert outcome.status is Status.COMPLETED
        assert outcome.state.state is not None
        assert (outcome.state.state.processed_chunks, outcome.state.state.failed_chunks) == (9, [3])
        assert (outcome.state.state.status, outcome.state.state.last_error) == ("partial", "429 rate limit")
        assert work.calls[3] >= 4  # what was cut off before it was recorded is no attempt
        failures = [event async for event in session.events() if event.event_type == "chunk.failed"]
        assert [event.data["attempt"] for event in failures] == [1, 2, 3, 4]
        assert [event.data["again_in"] is None for event in failures] == [False, False, False, True]


@on_loop
async def test_a_chunk_that_was_given_up_is_not_tried_whenever_another_one_wakes_the_session(tmp_path: Path) -> None:
    clock, work = ManualClock(auto=True), Work()
    work.fails = {1: [ValueError("torn page") for _ in range(99)], 2: [RateLimit(30), RateLimit(30)]}
    async with open_engine(tmp_path / "hold.db", clock=clock) as engine:
        session = await engine.start(workflow(work, retry=Retry(attempts=5, on=(RateLimit,)), on_error="raise"))
        assert (await session.outcome()).status is Status.FAILED
        assert (work.calls[1], work.calls[2]) == (1, 3)
        await (await session.resume()).outcome()
        assert (work.calls[1], work.calls[2]) == (2, 3), "a resume tries it again"


@on_loop
async def test_a_resume_that_wakes_does_not_wait_for_the_limit(tmp_path: Path) -> None:
    clock, work = ManualClock(), Work()
    work.fails = {0: [RateLimit(3600)]}
    async with open_engine(tmp_path / "hold.db", clock=clock) as engine:
        session = await engine.start(workflow(work))
        await _asleep(session)
        outcome = await (await session.resume(wake=True)).outcome()
        assert outcome.status is Status.COMPLETED
        assert work.calls[0] == 2


@on_loop
async def test_a_pause_takes_effect_while_a_limit_is_waited_out(tmp_path: Path) -> None:
    clock, work = ManualClock(), Work()
    work.fails = {0: [RateLimit(3600)]}
    async with open_engine(tmp_path / "hold.db", clock=clock) as engine:
        session = await engine.start(workflow(work))
        await _asleep(session)
        await session.pause("lunch")
        assert (await session.outcome()).status is Status.PAUSED
        await session.resume()
        await _asleep(session)
        assert work.calls[0] == 1, "the limit is still there"
        clock.advance(3601)
        assert (await session.outcome()).status is Status.COMPLETED


# many, and the rest


@pytest.mark.covers("S3.87")
@on_loop
async def test_a_thousand_chunks_at_a_time_are_all_counted(tmp_path: Path) -> None:
    together = asyncio.Barrier(1000)

    async def work(chunk: Chunk) -> int:
        await together.wait()  # all of them end in the same moment
        if chunk.index % 10 == 0:
            raise ValueError("every tenth")
        return chunk.index

    @step(writes=["state", "topics"])
    async def ingest(registry: dict[str, File], ctx: Context) -> dict[str, Any]:
        [file] = registry
        found = await ctx.files.chunks(file, work, 1000, concurrency=1000, retry=NOTHING_TWICE)
        return {"state": found.state, "topics": [str(number) for number in found.done]}

    async with open_engine(tmp_path / "hold.db") as engine:
        session = await engine.start(Workflow("many", state=Ingest, steps=[collect, ingest]))
        outcome = await session.outcome()
        assert outcome.failure is None
        state = await progress(session)
        assert state == outcome.state.state
        assert state.processed_chunks == 900
        assert state.failed_chunks == list(range(0, 1000, 10))
        assert outcome.state.topics == [str(number) for number in range(1000) if number % 10]
        assert (await session.verify()).ok


@on_loop
async def test_a_plain_step_works_on_chunks_in_threads(tmp_path: Path) -> None:
    def read(chunk: Chunk, ctx: BlockingContext) -> str:
        with ctx.files.open(chunk.file_id) as stream:
            stream.seek(chunk.index * chunk.params["size"])
            return stream.read(6).decode()

    @step(writes=["chunks", "found"])
    def ingest(registry: dict[str, File], ctx: BlockingContext) -> dict[str, Any]:
        [file] = registry.values()
        found = ctx.files.chunks(file, read, 4, size=7)
        assert ctx.files.progress(file.file_id) == found.state
        return {"chunks": {file.file_id: found.state}, "found": list(found.done.values())}

    async with open_engine(tmp_path / "hold.db") as engine:
        outcome = await (await engine.start(Workflow("plain", state=Desk, steps=[collect, ingest]))).outcome()
        assert outcome.failure is None
        assert outcome.state.found == ["line 0", "line 1", "line 2", "line 3"]


@on_loop
async def test_only_files_that_are_uploaded_are_worked_on(tmp_path: Path) -> None:
    async def attempt(ctx: Context, file: Any, total: Any, **options: Any) -> str:
        try:
            await ctx.files.chunks(file, first_words, total, **options)
        except (FileRefused, UnknownFile, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return "taken"

    @step(writes="found")
    async def refused(registry: dict[str, File], ctx: Context) -> list[str]:
        [file] = registry.values()
        half = file.model_copy(update={"upload_status": "uploading"})
        cases: list[tuple[Any, Any, dict[str, Any]]] = [
            (half, 1, {}), ("file_none", 1, {}), (file, -1, {}), (file, 1.5, {}), (file, 1, {"on_error": "ignore"}),
            (file, 1, {"concurrency": 0}), (file, 0, {"size": 1}),
        ]  # fmt: skip
        return [await attempt(ctx, each, total, **options) for each, total, options in cases]

    async with open_engine(tmp_path / "hold.db") as engine:
        outcome = await (await engine.start(Workflow("refused", state=Desk, steps=[collect, refused]))).outcome()
        assert outcome.failure is None
        assert [text.partition(":")[0] for text in outcome.state.found] == [
            "FileRefused", "UnknownFile", "ValueError", "ValueError", "ValueError", "ValueError", "taken",
        ]  # fmt: skip


@on_loop
async def test_a_file_of_nothing_but_failures_has_failed(tmp_path: Path) -> None:
    work = Work()
    work.fails = {index: [ValueError("torn page")] for index in range(10)}
    async with open_engine(tmp_path / "hold.db") as engine:
        outcome = await (await engine.start(workflow(work, retry=NOTHING_TWICE))).outcome()
        assert outcome.state.state is not None
        assert (outcome.state.state.status, len(outcome.state.state.failed_chunks)) == ("failed", 10)


@pytest.mark.long
@on_loop
async def test_figures_outlive_key_frames(tmp_path: Path) -> None:
    """A key frame comes every 256 records at the earliest, and everything before it is not read again."""

    async with open_engine(tmp_path / "hold.db") as engine:
        work = Work()
        work.fails = {2: [ValueError("torn page")]}
        session = await engine.start(workflow(work, retry=NOTHING_TWICE), total=300)
        await session.outcome()
        before = await progress(session)
        for _ in range(2):
            await session.rewind("ingest", reuse=True)
            work.fails = {2: [ValueError("torn page")]}
            await (await session.resume()).outcome()
        row = await engine.store.get(session.id)
        assert row is not None
        assert row.key_frame > 300
        assert await progress(session) == before
        assert before.failed_chunks == [2]


def test_chunks_say_what_they_are() -> None:
    assert str(Chunk("file_001", 12, {})) == "file_001:12"
