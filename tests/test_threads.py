"""Blocking code beside an event loop: a thread of its own, or a lane for calls that follow one another."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from pausepoint import threads
from pausepoint.threads import Lane, in_thread
from tests.support.loop import on_loop

_word: ContextVar[str] = ContextVar("word")


def fails() -> None:
    raise ValueError("no")


def stops() -> None:
    raise StopIteration("no more")


@on_loop
async def test_a_lane_runs_its_calls_in_order_in_one_thread_and_delivers_what_they_raise() -> None:
    lane, order, queued = Lane("files"), list[int](), threading.Event()
    _word.set("kept")

    def note(number: int, *, word: str) -> tuple[threading.Thread, str]:
        queued.wait()
        order.append(number)
        return threading.current_thread(), word + _word.get()

    calls = [asyncio.ensure_future(lane.run(note, each, word="is ")) for each in range(100)]
    await asyncio.sleep(0)  # all calls are in the lane then
    queued.set()
    found = await asyncio.gather(*calls)
    assert order == list(range(100))
    assert {word for _, word in found} == {"is kept"}
    (thread,) = {thread for thread, _ in found}
    assert thread is not threading.main_thread()
    assert thread.daemon
    for fn, error in ((fails, ValueError), (stops, RuntimeError)):
        with pytest.raises(error):
            await lane.run(fn)


@on_loop
async def test_the_thread_of_an_idle_lane_ends_and_the_next_call_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "IDLE", 0.001)
    lane = Lane("files")
    first = await lane.run(threading.current_thread)
    await in_thread(first.join)
    assert await lane.run(threading.current_thread) is not first


@on_loop
async def test_no_call_is_lost_while_threads_of_a_lane_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE", 0.0)
    lane, seen = Lane("files"), set[Any]()
    for number in range(500):
        seen.add(await lane.run(lambda number=number: (number, threading.get_ident())))
    assert sorted(number for number, _ in seen) == list(range(500))


@on_loop
async def test_a_call_whose_caller_left_still_runs_and_the_next_one_follows() -> None:
    lane, begun, go, done = Lane("files"), threading.Event(), threading.Event(), list[str]()

    def slow() -> None:
        begun.set()
        go.wait()
        done.append("slow")

    task = asyncio.ensure_future(lane.run(slow))
    await in_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    behind = asyncio.ensure_future(lane.run(done.append, "behind"))
    go.set()
    await behind
    assert done == ["slow", "behind"]


@on_loop
async def test_a_call_that_gets_no_thread_does_not_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, done = Lane("files"), list[str]()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await lane.run(done.append, "refused")
    await lane.run(done.append, "second")
    assert done == ["second"]
