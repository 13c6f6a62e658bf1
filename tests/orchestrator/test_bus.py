"""The event bus: typed, in order, to plain and async listeners, and again from any cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_type

import pytest

from pausepoint.orchestrator import (
    BusEvent,
    EventBus,
    Logged,
    MemoryLog,
    OrchestratorPaused,
    OrchestratorResumed,
    TaskCompleted,
    TaskFailed,
)
from tests.support.loop import on_loop

PAUSED = OrchestratorPaused(1, ("a",))
RESUMED = OrchestratorResumed(2, ("a",))
DONE = TaskCompleted("build", "a")


@on_loop
async def test_a_listener_hears_its_kind_by_class_by_name_and_by_pattern() -> None:
    bus, heard = EventBus(), list[tuple[str, str]]()

    def listener(name: str) -> Callable[[BusEvent], None]:
        return lambda event: heard.append((name, event.type))

    for name in ("orchestrator:paused", "orchestrator:*", "*", "task:*"):
        bus.on(name, listener(name))

    def by_class(event: OrchestratorPaused) -> None:
        assert_type(event.active_agent_ids, tuple[str, ...])
        heard.append(("class", event.type))

    bus.on(OrchestratorPaused, by_class)
    bus.on(BusEvent, listener("any"))
    await bus.emit(PAUSED)
    names = ("orchestrator:paused", "orchestrator:*", "*", "class", "any")
    assert heard == [(name, "orchestrator:paused") for name in names]
    heard.clear()
    await bus.emit(DONE)
    assert heard == [("*", "task:completed"), ("task:*", "task:completed"), ("any", "task:completed")]


@on_loop
async def test_a_slow_listener_hears_everything_in_order_and_holds_nobody_up() -> None:
    bus, slow, quick = EventBus(), list[str](), list[str]()
    gate = asyncio.Event()

    async def slowly(event: BusEvent) -> None:
        if event is PAUSED:  # what came first takes longest
            await gate.wait()
        slow.append(event.type)

    bus.on("*", slowly)
    bus.on("*", lambda event: quick.append(event.type))
    for event in (PAUSED, RESUMED, DONE):
        await bus.emit(event)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(quick), slow) == (3, [])
    gate.set()
    await bus.heard()
    assert slow == quick == ["orchestrator:paused", "orchestrator:resumed", "task:completed"]


@on_loop
async def test_one_that_raises_hears_what_comes_after() -> None:
    bus, heard = EventBus(), list[str]()

    async def at_odds(event: BusEvent) -> None:
        await asyncio.sleep(0)
        heard.append(event.type)
        raise ValueError

    bus.on("*", at_odds)
    await bus.emit(PAUSED)
    await bus.emit(RESUMED)
    await bus.heard()
    assert heard == ["orchestrator:paused", "orchestrator:resumed"]


@on_loop
async def test_one_whose_work_is_cancelled_hears_what_comes_after_and_holds_up_nobody() -> None:
    bus, heard = EventBus(), list[str]()

    async def cut_off(event: BusEvent) -> None:
        heard.append(event.type)
        fetching = asyncio.ensure_future(asyncio.sleep(60))
        fetching.cancel()
        await fetching

    async def waits_for_the_others(event: BusEvent) -> None:
        await bus.heard()
        heard.append("all")

    bus.on("*", cut_off)
    bus.on(OrchestratorResumed, waits_for_the_others)
    await bus.emit(PAUSED)
    await bus.heard()
    await bus.emit(RESUMED)
    await bus.heard()
    assert heard == ["orchestrator:paused", "orchestrator:resumed", "all"]


@on_loop
async def test_who_unsubscribes_hears_no_more() -> None:
    bus, heard = EventBus(), list[BusEvent]()
    off = bus.on("*", heard.append)
    off()
    off()
    await bus.emit(PAUSED)
    assert heard == []


@on_loop
async def test_who_unsubscribes_while_listening_does_not_hear_the_rest() -> None:
    bus, heard, gate = EventBus(), list[str](), asyncio.Event()

    async def slowly(event: BusEvent) -> None:
        heard.append(event.type)
        await gate.wait()

    off = bus.on("*", slowly)
    await bus.emit(PAUSED)
    await bus.emit(RESUMED)
    off()
    gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert heard == ["orchestrator:paused"]


@on_loop
async def test_what_was_carried_can_be_read_from_any_cursor() -> None:
    bus = EventBus()
    for event in (PAUSED, RESUMED, DONE):
        await bus.emit(event)
    everything = await bus.replay()
    assert [logged.event for logged in everything] == [PAUSED, RESUMED, DONE]
    for read, logged in enumerate(everything, 1):
        assert await bus.replay(logged.cursor) == everything[read:]
    with pytest.raises(ValueError, match="'x' is not a cursor"):
        await bus.replay("x")


@on_loop
async def test_who_hears_of_an_event_finds_it_in_the_log() -> None:
    log = MemoryLog()
    bus, found = EventBus(log), list[bool]()
    bus.on("*", lambda event: found.append(event in log.events))
    await bus.emit(PAUSED)
    assert found == [True]


class Full:
    """A log on a full disk."""

    async def append(self, event: BusEvent) -> None:
        raise OSError("no space left")

    async def read(self, after: str = "") -> list[Logged]:
        return []


@on_loop
async def test_listeners_are_told_even_if_the_log_refuses_and_so_is_who_emits() -> None:
    bus, heard = EventBus(Full()), list[BusEvent]()
    bus.on("*", heard.append)
    with pytest.raises(OSError, match="no space left"):
        await bus.emit(PAUSED)
    assert heard == [PAUSED]


def test_the_data_of_an_event_is_what_json_would_say() -> None:
    assert PAUSED.data == {"timestamp": 1, "activeAgentIds": ["a"], "reason": "", "by": None, "stoppedIn": 0.0}
    assert TaskFailed("build", "a", "no").data == {"task": "build", "agent": "a", "error": "no", "attempt": 1}
