"""Schedules: sessions that start at the times of a cron expression, once each, whatever happens to the engines."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.clock import to_datetime, to_micros
from pausepoint.engine.cron import check_cron, newest, next_after
from pausepoint.errors import DefinitionError, ScheduleRefused, StateRefused, UnknownSchedule
from pausepoint.server.words import detail_of
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.waits import async_until, until

START = datetime(2026, 11, 15, 2, 0, tzinfo=UTC)


class Digest(BaseModel):
    topic: str = "squid"
    when: datetime | None = None
    text: str = ""


@step(writes="text")
async def write(ctx: Context, topic: str) -> str:
    return await ctx.do(str.upper, topic)


@step
async def wait(ctx: Context) -> None:
    await ctx.receive()


digest = Workflow("digest", state=Digest, steps=[write])
slow = Workflow("slow", state=Digest, steps=[wait, write])


def clock_at(start: datetime = START) -> ManualClock:
    return ManualClock(start=to_micros(start))


async def ids(engine: Engine) -> list[str]:
    return sorted(info.session_id for info in await engine.sessions())


async def clock_catches_up(engine: Engine, *expected: str) -> None:
    """Wait until these sessions, and no others, are stored."""
    await async_until(lambda: _has(engine, sorted(expected)))


async def _has(engine: Engine, expected: list[str]) -> bool:
    return set(expected) <= set(await ids(engine))


def times(cron: str, zone: str, start: str, count: int) -> list[str]:
    found, at = [], to_micros(datetime.fromisoformat(start))
    for _ in range(count):
        at = next_after(cron, zone, at)
        found.append(f"{to_datetime(at):%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("cron", "start", "expected"),
    [
        ("0 7 * * 1-5", "2026-11-13T05:00+00:00", ["11-13 06:00", "11-16 06:00"]),  # a weekend
        ("30 2 * * *", "2027-03-27T12:00+00:00", ["03-28 01:00", "03-29 00:30"]),  # 02:30 does not exist: 03:00
        ("30 2 * * *", "2026-10-24T12:00+00:00", ["10-25 00:30", "10-26 01:30"]),  # 02:30 exists twice: the first
        ("30 2 * * *", "2026-10-25T00:45+00:00", ["10-26 01:30"]),  # from between the two
        ("30 2 * * *", "2026-10-25T01:10+00:00", ["10-26 01:30"]),
        ("*/30 * * * *", "2026-10-25T00:15+00:00", ["10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"]),
        ("0 */2 * * *", "2027-03-27T22:30+00:00", ["03-27 23:00", "03-28 02:00"]),  # no 02:00
        ("0 */2 * * *", "2026-10-24T23:30+00:00", ["10-25 00:00", "10-25 01:00", "10-25 03:00"]),  # 02:00 twice
        ("0 0 29 2 *", "2026-01-01T00:00+00:00", ["02-28 23:00"]),
    ],
)
def test_times_follow_the_zone_through_changes_of_the_clocks(cron: str, start: str, expected: list[str]) -> None:
    assert times(cron, "Europe/Berlin", start, len(expected)) == expected


def test_the_newest_time_is_found_without_walking_through_all_others() -> None:
    first, now = to_micros(START - timedelta(days=4000)), to_micros(START + timedelta(seconds=30))
    assert newest("* * * * *", "UTC", first, now) == to_micros(START)
    assert newest("0 3 * * *", "UTC", first, now) == to_micros(START - timedelta(hours=23))
    berlin = to_micros(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))  # the first 02:30 of the day
    assert newest("30 2 * * *", "Europe/Berlin", berlin, berlin + 40 * 60_000_000) == berlin


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a@b"}, {"name": "../x"}, {"name": ""}, {"name": "x" * 65}, {"name": 5},
        {"cron": "0 7 * *"}, {"cron": "61 * * * *"}, {"cron": "* * * * * *"}, {"cron": 7},
        {"zone": "Mars/Phobos"}, {"zone": "../etc/passwd"}, {"zone": ""}, {"zone": None}, {"overlap": "maybe"},
        {"catch_up": "some"}, {"overlap": "queue", "catch_up": "none"}, {"topic": "x" * 70_000},
        {"queue": "a b"}, {"priority": 1001},
    ],
    ids=str,
)  # fmt: skip
@on_loop
async def test_a_schedule_that_is_not_valid_is_refused_and_nothing_is_stored(wrong: dict[str, Any]) -> None:
    given = {"name": "nightly", "cron": "0 3 * * *"} | wrong
    name = given.pop("name")
    async with Engine(":memory:") as engine:
        with pytest.raises(ScheduleRefused) as error:
            await engine.schedule(name, digest, **given)
        assert str(error.value).endswith(".")
        with pytest.raises(StateRefused):
            await engine.schedule("nightly", digest, cron="0 3 * * *", topic=[1])
        assert list(await engine.schedules.list()) == []


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_an_expression_that_never_matches_is_named(cron: str) -> None:
    with pytest.raises(ScheduleRefused, match="never matches, because its month has no such day"):
        check_cron(cron, "UTC")


@on_loop
async def test_a_schedule_starts_sessions_with_its_input_and_their_ids_are_its_times() -> None:
    clock = clock_at()
    async with Engine(":memory:", clock=clock) as engine:
        when = datetime(2026, 1, 1, tzinfo=UTC)
        made = await engine.schedule(
            "nightly", digest, cron=" 0  3 * * * ", owner="ann", tags="n", topic="owl", when=when
        )
        assert (made.cron, made.next_at, made.input["topic"]) == ("0 3 * * *", START + timedelta(hours=1), "owl")
        for day in (15, 16):
            clock.advance(3600 if day == 15 else 86400)
            await clock_catches_up(engine, f"nightly@202611{day}T030000Z")
            outcome = await engine.session(f"nightly@202611{day}T030000Z", digest).outcome()
            assert (outcome.state.text, outcome.state.when) == ("OWL", when)
            assert (await engine.session(outcome.session_id).info()).owner == "ann"
        (now,) = await engine.schedules.list()
        assert (now.last_session_id, now.next_at) == ("nightly@20261116T030000Z", START + timedelta(days=2, hours=1))
        assert len(await ids(engine)) == 2


async def looked(engine: Engine) -> None:
    """Wait until the engine has looked for what is due."""
    await engine.schedule("probe", digest, cron="0 0 1 1 *")
    probe = await engine.schedules.trigger("probe")
    await clock_catches_up(engine, probe)
    await engine.session(probe).outcome()
    await engine.session(probe).remove()
    await engine.schedules.remove("probe")


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("newest", ["@20261117T030000Z"]),
        ("all", ["@20261115T030000Z", "@20261116T030000Z", "@20261117T030000Z"]),
        ("none", []),
    ],
)
@on_loop
async def test_runs_that_nobody_could_start_are_caught_up_as_asked(
    catch_up: Any, expected: list[str], tmp_path: Path
) -> None:
    clock = clock_at()
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        await engine.schedule("n", digest, cron="0 3 * * *", catch_up=catch_up, overlap="allow")
    clock.advance(timedelta(days=2, hours=5))
    async with Engine(tmp_path / "s.db", clock=clock, workflows=[digest]) as engine:
        await looked(engine)
        assert await ids(engine) == [f"n{each}" for each in expected]
        (now,) = await engine.schedules.list()
        assert now.next_at == datetime(2026, 11, 18, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("overlap", "during", "afterwards"),
    [
        ("skip", ["15"], ["15", "17"]),
        ("queue", ["15"], ["15", "16", "17"]),
        ("allow", ["15", "16"], ["15", "16", "17"]),
    ],
)
@on_loop
async def test_a_run_while_the_previous_one_has_not_ended(
    overlap: Any, during: list[str], afterwards: list[str]
) -> None:
    def named(days: list[str]) -> list[str]:
        return [f"n@202611{day}T030000Z" for day in days]

    clock = clock_at()
    async with Engine(":memory:", clock=clock, workflows=[digest]) as engine:
        await engine.schedule("n", slow, cron="0 3 * * *", overlap=overlap)
        clock.advance(3600)
        await clock_catches_up(engine, *named(["15"]))
        clock.advance(86400)
        await looked(engine)
        assert await ids(engine) == named(during)
        for each in await ids(engine):
            await engine.session(each).send("go")
            await engine.session(each).outcome()
        if overlap == "queue":
            await clock_catches_up(engine, *named(["16"]))  # it starts when the other one has ended
            await engine.session(named(["16"])[0]).cancel()
        await looked(engine)
        clock.advance(86400)
        await clock_catches_up(engine, *named(["17"]))
        assert await ids(engine) == named(afterwards)
        (now,) = await engine.schedules.list()
        assert now.skipped == (1 if overlap == "skip" else 0)


@on_loop
async def test_of_two_engines_one_starts_each_run(tmp_path: Path) -> None:
    clock = clock_at()
    path = tmp_path / "s.db"
    async with Engine(path, clock=clock) as first, Engine(path, clock=clock, workflows=[digest]) as second:
        await first.schedule("n", digest, cron="* * * * *", overlap="allow")
        for minute in range(1, 11):
            clock.advance(60)
            await clock_catches_up(second, f"n@20261115T02{minute:02}00Z")
        await first.idle()
        await second.idle()
        found = await first.sessions()
        assert len(found) == 10
        assert {info.status for info in found} == {Status.COMPLETED}
        assert {len(await first.session(info.session_id).checkpoints()) for info in found} == {1}  # each step ran once


@on_loop
async def test_a_paused_schedule_starts_nothing_and_catches_nothing_up() -> None:
    clock = clock_at()
    async with Engine(":memory:", clock=clock) as engine:
        await engine.schedule("n", digest, cron="0 3 * * *")
        paused = await engine.schedules.pause("n", by="ann")
        assert (paused.next_at, paused.paused_by) == (None, "ann")
        assert await engine.schedules.pause("n", by="ben") == paused
        assert (await engine.schedule("n", digest, cron="0 3 * * *", topic="owl")).paused_by == "ann"
        clock.advance(timedelta(days=3))
        await looked(engine)
        assert await ids(engine) == []
        assert (await engine.schedules.resume("n")).next_at == datetime(2026, 11, 18, 3, tzinfo=UTC)
        await looked(engine)
        assert await ids(engine) == []
        clock.advance(3600)
        await clock_catches_up(engine, "n@20261118T030000Z")


@on_loop
async def test_a_trigger_starts_a_session_now_and_the_times_stay() -> None:
    clock = clock_at()
    async with Engine(":memory:", clock=clock) as engine:
        made = await engine.schedule("n", slow, cron="0 3 * * *")
        await engine.schedules.pause("n")
        triggered = await engine.schedules.trigger("n", by="ann")
        assert triggered == "n@20261115T020000_000000Z"
        await clock_catches_up(engine, triggered)
        with pytest.raises(ScheduleRefused, match="has not ended") as refused:
            await engine.schedules.trigger("n")
        assert detail_of(refused.value) == str(refused.value)  # a client of the API reads the same
        await engine.session(triggered).cancel()
        assert (await engine.schedules.resume("n")).next_at == made.next_at
        verbs = engine.schedules
        for verb in (verbs.pause, verbs.resume, verbs.trigger, verbs.remove):
            with pytest.raises(UnknownSchedule, match="has no schedule 'm'"):
                await verb("m")
        await engine.schedules.remove("n")
        assert list(await engine.schedules.list()) == []
        assert await ids(engine) == [triggered]


@on_loop
async def test_two_triggers_at_one_time_are_two_sessions() -> None:
    async with Engine(":memory:", clock=clock_at()) as engine:
        await engine.schedule("n", slow, cron="0 3 * * *", overlap="allow")
        both = []
        for _ in range(2):
            both.append(await engine.schedules.trigger("n"))
            await clock_catches_up(engine, both[-1])
        assert both == ["n@20261115T020000_000000Z", "n@20261115T020000_000001Z"]
        assert sorted(await ids(engine)) == both


@on_loop
async def test_a_trigger_that_waits_for_an_engine_survives_a_pause_and_a_resume_of_its_schedule(tmp_path: Path) -> None:
    clock = clock_at()
    async with Engine(tmp_path / "s.db", clock=clock, drives="none") as engine:
        await engine.schedule("n", slow, cron="0 3 * * *")
        triggered = await engine.schedules.trigger("n", by="ann")
        assert await engine.schedules.trigger("n", by="ben") == triggered  # it waits already
        for change in (engine.schedules.pause, engine.schedules.resume, engine.schedules.pause):
            assert (await change("n")).triggered_at is not None
        assert await ids(engine) == []
    async with Engine(tmp_path / "s.db", clock=clock, workflows=[slow]) as engine:
        await clock_catches_up(engine, triggered)
        (after,) = await engine.schedules.list()
        assert (after.triggered_at, after.next_at, after.last_session_id) == (None, None, triggered)  # still paused


@on_loop
async def test_the_author_of_a_schedule_is_the_one_who_changed_it_last() -> None:
    async with Engine(":memory:", clock=clock_at()) as engine:
        await engine.schedule("n", slow, cron="0 3 * * *", by="ann")
        assert (await engine.schedule("n", slow, cron="0 3 * * *")).by == "ann"  # nothing has changed
        assert (await engine.schedule("n", slow, cron="0 4 * * *", by="ben")).by == "ben"


@on_loop
async def test_while_everything_is_paused_a_run_is_stored_paused_and_resumes_with_the_rest() -> None:
    clock = clock_at()
    async with Engine(":memory:", clock=clock) as engine:
        await engine.schedule("n", digest, cron="0 3 * * *")
        await engine.pause_all()
        clock.advance(3600)
        await clock_catches_up(engine, "n@20261115T030000Z")
        session = engine.session("n@20261115T030000Z")
        assert await session.status() is Status.PAUSED
        await engine.lift_pause()
        assert (await session.outcome()).status is Status.COMPLETED


@on_loop
async def test_an_engine_that_was_asked_for_few_sessions_or_none_starts_no_run(tmp_path: Path) -> None:
    clock = clock_at()
    path = tmp_path / "s.db"
    async with Engine(path, clock=clock, drives="none") as reader, Engine(path, clock=clock, drives="asked") as asked:
        await reader.schedule("n", digest, cron="0 3 * * *")
        asked.register(digest)
        clock.advance(3600)
        await (await asked.start(digest, session_id="mine")).outcome()
        assert await ids(reader) == ["mine"]
        async with Engine(path, clock=clock, workflows=[digest]) as third:
            await clock_catches_up(third, "n@20261115T030000Z")


class Strict(BaseModel):
    topic: str = Field(max_length=2)
    text: str = ""


class Renamed(BaseModel):
    topics: str = ""
    text: str = ""


@step(writes="text")
async def write_nothing() -> str:
    return ""


@pytest.mark.parametrize("state", [Strict, Renamed])
@on_loop
async def test_a_schedule_whose_input_no_longer_fits_waits_for_code_that_fits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, state: type[BaseModel]
) -> None:
    clock = clock_at()
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        await engine.schedule("n", digest, cron="0 3 * * *", topic="owl")
    clock.advance(3600)
    async with Engine(
        tmp_path / "s.db", clock=clock, workflows=[slow, Workflow("digest", state=state, steps=[write_nothing])]
    ) as engine:
        await async_until(lambda: asyncio.sleep(0, [each for each in caplog.messages if "cannot start" in each]))
        for _ in range(3):
            await (await engine.start(slow, session_id=None)).pause()
        assert sum("cannot start" in each for each in caplog.messages) == 1
    async with Engine(tmp_path / "s.db", clock=clock, workflows=[digest]) as engine:
        await clock_catches_up(engine, "n@20261115T030000Z")


@on_loop
async def test_a_damaged_schedule_is_named_and_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        await engine.schedule("a", digest, cron="0 3 * * *")
        await engine.schedule("b", digest, cron="0 3 * * *")
    raw = apsw.Connection(str(path))
    raw.execute("UPDATE schedules SET cron = '* * * * *' WHERE name = 'a'")
    raw.close()
    async with Engine(path, workflows=[digest]) as engine:
        found = await engine.schedules.list()
        assert [each.name for each in found] == ["b"]
        assert [error.fields["name"] for error in found.damaged] == ["a"]
        assert not (await engine.verify()).ok
        await engine.schedule("a", digest, cron="0 3 * * *")
        assert (await engine.verify()).ok


def test_schedules_work_without_await(tmp_path: Path) -> None:
    with Engine(tmp_path / "s.db") as engine:
        engine.schedule("n", digest, cron="0 3 * * *")
        id = engine.schedules.trigger("n")
        with pytest.raises(DefinitionError):
            engine.schedule("n", Workflow("digest", state=Digest, steps=[wait]), cron="0 3 * * *")
        assert [each.name for each in engine.schedules.list()] == ["n"]
        until(lambda: any(info.session_id == id for info in engine.sessions()))
        assert engine.session(id).outcome().status is Status.COMPLETED


@pytest.mark.parametrize(
    ("rule", "zone", "first", "now", "expected"),
    [
        ("* * * * *", "UTC", "2026-11-15T03:00:00", "2026-11-15T03:09:59.400", "2026-11-15T03:09:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T00:30:00", "2026-10-25T01:10:00", "2026-10-25T00:30:00"),
        ("0 3 * * *", "UTC", "2026-11-15T03:00:00", "2026-11-15T03:00:00", "2026-11-15T03:00:00"),
        ("0 * * * *", "UTC", "2026-11-15T01:00", "2026-11-15T03:00", "2026-11-15T03:00"),  # at its very time
    ],
)
def test_the_newest_missed_run_is_the_last_one_that_is_not_in_the_future(
    rule: str, zone: str, first: str, now: str, expected: str
) -> None:
    def at(text: str) -> int:
        return to_micros(datetime.fromisoformat(f"{text}+00:00"))

    assert newest(rule, zone, at(first), at(now)) == at(expected)


@on_loop
async def test_all_runs_that_were_missed_while_one_session_runs_are_skipped_at_once(tmp_path: Path) -> None:
    clock = clock_at()
    async with Engine(tmp_path / "s.db", clock=clock, workflows=[slow]) as engine:
        await engine.schedule("n", slow, cron="* * * * *", overlap="skip", catch_up="all")
        clock.advance(60)
        await async_until(lambda: ids(engine))
        clock.advance(3600)
        await async_until(lambda: _skipped(engine))
        [found] = await engine.schedules.list()
        assert (found.skipped, len(await ids(engine))) == (1, 1)


class Keyed(BaseModel):
    key: str = Field(default_factory=lambda: KEYS[0])
    text: str = ""


KEYS: list[str] = []


@on_loop
async def test_a_run_that_cannot_start_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    keyed, clock = Workflow("keyed", state=Keyed, steps=[write_nothing]), clock_at()
    KEYS[:] = ["a"]
    async with Engine(":memory:", clock=clock) as engine:
        await engine.schedule("n", keyed, cron="0 3 * * *")
        KEYS.clear()
        clock.advance(3600)
        await async_until(lambda: asyncio.sleep(0, "Next attempt: 2026-11-15T03:01:00+00:00" in caplog.text))
        clock.advance(60)
        await async_until(lambda: asyncio.sleep(0, "Next attempt: 2026-11-15T03:03:00+00:00" in caplog.text))
        KEYS[:] = ["b"]
        clock.advance(120)
        await clock_catches_up(engine, "n@20261115T030000Z")


@on_loop
async def test_a_run_that_waits_survives_a_pause_and_a_resume_of_its_schedule() -> None:
    clock = clock_at()
    async with Engine(":memory:", clock=clock) as engine:
        await engine.schedule("n", slow, cron="0 3 * * *", overlap="queue")
        clock.advance(3600)
        await clock_catches_up(engine, "n@20261115T030000Z")
        clock.advance(86400)
        await engine.schedules.pause("n")
        await engine.schedules.resume("n")
        await engine.session("n@20261115T030000Z").cancel()
        await clock_catches_up(engine, "n@20261116T030000Z")


@on_loop
async def test_a_clock_that_was_ahead_does_not_stop_a_schedule_and_no_run_is_repeated(tmp_path: Path) -> None:
    ahead, path = clock_at(START + timedelta(days=365)), tmp_path / "s.db"
    async with Engine(path, clock=ahead) as engine:
        await engine.schedule("n", digest, cron="0 3 * * *")
    async with Engine(path, clock=clock_at()) as engine:
        stored = await engine.schedule("n", digest, cron="0 3 * * *")
        assert stored.next_at == START + timedelta(hours=1)
    late = clock_at(START + timedelta(hours=1))
    async with Engine(path, clock=late, workflows=[digest]) as engine:
        await clock_catches_up(engine, "n@20261115T030000Z")
    async with Engine(path, clock=clock_at(START + timedelta(minutes=59))) as engine:  # a minute behind the other one
        assert (await engine.schedule("n", digest, cron="0 3 * * *")).next_at == START + timedelta(days=1, hours=1)


@on_loop
async def test_an_older_session_counts_as_overlap_and_a_taken_id_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = clock_at()
    async with Engine(":memory:", clock=clock) as engine:
        await engine.schedule("n", slow, cron="0 3 * * *", overlap="allow")
        both = []
        for _ in range(2):
            both.append(await engine.schedules.trigger("n"))
            await clock_catches_up(engine, both[-1])
        await cancelled(engine, both[1])
        await engine.schedule("n", slow, cron="0 3 * * *", overlap="skip")
        with pytest.raises(ScheduleRefused, match=both[0]):
            await engine.schedules.trigger("n")
        await (await engine.start(slow, session_id="n@mine")).outcome()  # not a run of the schedule
        await cancelled(engine, both[0])
        await engine.start(slow, session_id="n@20261115T030000Z")
        await cancelled(engine, "n@20261115T030000Z")
        clock.advance(3600)
        await async_until(lambda: asyncio.sleep(0, "n@20261115T030000Z exists already" in caplog.text))


async def cancelled(engine: Engine, session_id: str) -> None:
    await engine.session(session_id).cancel()
    await async_until(lambda: _is_cancelled(engine, session_id))


async def _is_cancelled(engine: Engine, session_id: str) -> bool:
    return (await engine.session(session_id).info()).status is Status.CANCELLED


async def _skipped(engine: Engine) -> int:
    [found] = await engine.schedules.list()
    return found.skipped
