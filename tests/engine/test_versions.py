"""Sessions that outlive their code: renamed, removed, moved or inserted steps, and the ways to resume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from pausepoint import Context, Engine, Status, Workflow, migrate, route, step
from pausepoint.definition.steps import Step
from pausepoint.testing import ManualClock
from tests.engine.releases import Memo, Second, State, flow, made, rename_topic, resumed, stored, types, why
from tests.support.children import outside_sql
from tests.support.loop import on_loop
from tests.support.status import settled

# steps


@on_loop
async def test_an_unchanged_definition_leaves_no_trace_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a b C d"))
    async with Engine(path, workflows=[flow("a b c d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "c", "d"]
    assert outside_sql(path, "SELECT seq FROM log WHERE kind = 'definition'") == []


@on_loop
async def test_ahead_of_a_session_steps_may_come_go_and_change_places(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a B c d e"))
    async with Engine(path, workflows=[flow("a b e new d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "e", "new", "d"]
        (event,) = await types(session, "definition.changed")
        assert event.data == {"added": ["new"], "removed": ["c"]}
        assert event.summary == "later steps changed: added new; removed c"


BEHIND = {
    "a passed step is missing": ("a b C d", "a c d", ["step 'b' is finished, but 'memo' no longer has it", "was='b'"]),
    "passed steps changed places": ("a b c D", "b a c d", ["is finished, but moved from", " to "]),
    "a passed step stands ahead now": ("a b C d", "a c b d", ["moved from after 'a' to after 'c'"]),
    "a new step stands before the position": (
        "a B c",
        "a new b c",
        ["step 'new' never ran, but is now before 'b'"],
    ),
    "a new step stands first": ("a B c", "new a b c", ["step 'new' never ran, but is now before 'a'"]),
    "a later step stands before the position": ("a B c d", "a d b c", ["'d' never ran, but is now before 'b'"]),
    "two new steps": ("a B", "a x y b", ["step 'x' never ran", "step 'y' never ran"]),
    "all at once": ("a b c D e", "a c new d", ["step 'b' is finished", "step 'new' never ran"]),
}


@pytest.mark.parametrize("case", BEHIND)
@on_loop
async def test_what_changed_behind_a_session_pauses_it_with_the_difference_and_the_ways_out(case: str) -> None:
    before, after, said = BEHIND[case]
    async with Engine(":memory:") as engine:
        started = await engine.start(flow(before), session_id="m-1")
        await started.outcome()
        engine.workflows["memo"] = flow(after)
        reason = await why(await resumed(engine))
        for part in said:
            assert part in reason
        assert 'session.resume(code="accept")' in reason
        assert "run the former code and resume" in reason
        (misfit,) = await engine.misfits()
        assert "; ".join(misfit.reasons) in reason
        assert "; or ".join(misfit.ways) in reason
        engine.workflows["memo"] = flow(before.lower())
        session = await resumed(engine)
        assert (await session.state()).trail == before.lower().split()


@on_loop
async def test_the_reason_names_the_visit_from_which_redoing_meets_none_of_the_differences() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b c D"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b d")
        reason = await why(await resumed(engine))
        assert "session.rewind('b')" in reason
        assert "session.fork(at_step='b')" in reason
        engine.workflows["memo"] = flow("b c d")
        assert "rewind" not in await why(await resumed(engine))  # no step exists before the missing one


@on_loop
async def test_a_position_that_is_lost_cannot_be_accepted() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b FETCH d"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b fetched d")
        for code in (None, "accept"):
            reason = await why(await resumed(engine, code=code))
            assert "the session is at step 'fetch', which 'memo' no longer has (Did you mean 'fetched'?)" in reason
            assert "@step(was='fetch')" in reason
            assert "session.rewind('b')" in reason
            assert 'code="accept"' not in reason
        engine.workflows["memo"] = flow("a b fetched=fetch d")
        assert (await (await resumed(engine)).state()).trail == ["a", "b", "fetched", "d"]


@on_loop
async def test_accepting_is_recorded_with_its_author_and_asked_once_only(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a b C d"))
    async with Engine(path, workflows=[flow("a new C d")]) as engine:
        session = await resumed(engine, code="accept", by="ann")
        assert await session.status() is Status.FAILED
        (event,) = await types(session, "definition.changed")
        assert event.agent_name == "ann"
        assert event.summary.startswith("accepted by ann: step 'b' is finished")
        assert [text.partition(" ")[2][:5] for text in event.data["accepted"]] == ["'b' i", "'new'"]
    async with Engine(path, workflows=[flow("a new c d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "c", "d"]
        assert len(await types(session, "definition.changed")) == 1


@on_loop
async def test_start_with_the_id_of_a_stored_session_looks_as_closely_as_resume_does(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a B"))
    async with Engine(path) as engine:
        session = await engine.start(flow("b"), session_id="m-1")
        await session.outcome()
        assert "step 'a' is finished" in await why(session)


def forked(names: str, target: str) -> Workflow[Any]:
    """Return a workflow whose first step is followed by a route to ``target``."""

    @route(after="a")
    def onward(topic: str) -> Literal["b", "d"]:
        return target  # type: ignore[return-value]  # drawn by the test

    return flow(names, routes=[onward])


@on_loop
async def test_a_step_that_a_route_jumped_over_was_not_put_in(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, forked("a b c D e", "d"))
    async with Engine(path, workflows=[forked("a b new c D e", "d")]) as engine:
        session = await resumed(engine)
        assert await session.status() is Status.FAILED, "what stands among the jumped ones is jumped over too"
    async with Engine(path, workflows=[forked("a b new c x d e", "d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "d", "e"]


@on_loop
async def test_in_a_loop_a_step_may_be_put_in_ahead_of_the_position() -> None:
    def looping(names: str, fails: bool) -> Workflow[Any]:
        @step(writes="trail")
        async def a(trail: list[str]) -> list[str]:
            if trail and fails:
                raise RuntimeError("in the second round")
            return ["a"]

        @route(after="c")
        def again(trail: list[str]) -> Literal["a"] | None:
            return "a" if trail.count("c") < 2 else None

        rest = [made(name) for name in names.split()]
        return Workflow("memo", state=Memo, steps=[a, *rest], routes=[again])

    async with Engine(":memory:") as engine:
        await (await engine.start(looping("b c", True), session_id="m-1")).outcome()
        assert (await engine.session("m-1").info()).visit == 2
        engine.workflows["memo"] = looping("new b c", False)
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "c", "a", "new", "b", "c"]


@on_loop
async def test_a_renamed_step_keeps_its_visits_and_what_its_open_visit_remembers(tmp_path: Path) -> None:
    done: list[str] = []
    keys: list[str] = []

    async def fetch(name: str) -> str:
        done.append(name)
        return f"{name} fetched"

    def working(name: str, was: Sequence[str], fails: bool) -> Step[..., Any]:
        @step(name=name, writes="trail", was=was)
        async def work(ctx: Context) -> list[str]:
            keys.append(ctx.idempotency_key)
            found = await ctx.do(fetch, "news")
            if fails:
                raise RuntimeError("after the operation")
            return [found]

        return work

    path = tmp_path / "h.db"
    await stored(path, Workflow("memo", state=Memo, steps=[made("a"), working("work", (), True), made("z")]))
    steps = [made("alpha", was=["a", "aa"]), working("labour", ["work"], False), made("z")]
    async with Engine(path, workflows=[Workflow("memo", state=Memo, steps=steps)]) as engine:
        assert await engine.misfits() == []
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "news fetched", "z"]
        assert done == ["news"], "the remembered operation did not run again"
        assert len(set(keys)) == 1
        (event,) = await types(session, "definition.changed")
        assert event.summary == "step 'a' renamed to 'alpha'; step 'work' renamed to 'labour'"
        assert event.data["renamed"] == {"a": "alpha", "work": "labour"}
    (row,) = outside_sql(path, "SELECT count(*) AS n FROM log WHERE kind = 'definition'")
    assert row["n"] == 1


# ways to resume, and sessions that wait


@on_loop
async def test_rewinding_to_the_visit_that_the_reason_names_is_a_way_out() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b c D"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b x d")
        session = await resumed(engine)
        assert "session.rewind('b')" in await why(session)
        await session.rewind("b", by="ann")
        await (await session.resume()).outcome()
        assert (await session.state()).trail == ["a", "b", "x", "d"]


@on_loop
async def test_forking_at_the_visit_that_the_reason_names_is_a_way_out_that_leaves_the_session_alone() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b c D"), session_id="m-1")).outcome()
        engine.workflows["memo"] = second = flow("a b x d", state=Second, version=2, migrations=[rename_topic])
        session = await resumed(engine)
        assert "session.fork(at_step='b')" in await why(session)
        copy = await session.fork(at_step="b", subject="squid")
        assert (await copy.outcome()).state == Second(subject="squid", trail=["a", "b", "x", "d"])
        assert (await copy.info()).version == second.version
        assert await session.status() is Status.PAUSED
        assert (await session.info()).version == 1


@on_loop
async def test_a_rewind_to_before_a_migration_goes_back_to_the_older_state_which_is_migrated_again() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b C"), session_id="m-1")).outcome()
        ran: list[int] = []

        @migrate(from_version=1)
        def counted(state: State) -> State:
            ran.append(1)
            return rename_topic(state)

        engine.workflows["memo"] = flow("a b c", state=Second, version=2, migrations=[counted])
        session = await resumed(engine)
        await session.rewind("b")
        assert (await session.info()).version == 1
        await (await session.resume()).outcome()
        assert await session.state() == Second(subject="otters", trail=["a", "b", "c"])
        assert (await session.info()).version == 2
        assert len(await types(session, "session.migrated")) == 2


HOUR = 3600.0


def napping(*before: Step[..., Any], **options: Any) -> Workflow[Any]:
    """Return a workflow whose last step sleeps for an hour."""

    @step(writes="trail")
    async def nap(ctx: Context) -> list[str]:
        await ctx.sleep(HOUR)
        return ["rested"]

    return Workflow("memo", state=options.pop("state", Memo), steps=[*before, nap], **options)


@on_loop
async def test_a_session_that_wakes_by_itself_is_migrated_and_keeps_its_timer() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(napping(), session_id="m-1")
        await settled(session, Status.SLEEPING)
        engine.workflows["memo"] = napping(state=Second, version=2, migrations=[rename_topic])
        clock.advance(HOUR)
        assert (await session.outcome()).state == Second(subject="otters", trail=["rested"])
        assert len(await types(session, "timer.set")) == 1
        assert len(await types(session, "session.migrated")) == 1


@on_loop
async def test_a_session_that_no_longer_fits_pauses_when_it_wakes() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(napping(made("a")), session_id="m-1")
        await settled(session, Status.SLEEPING)
        engine.workflows["memo"] = napping()
        clock.advance(HOUR)
        await settled(session, Status.PAUSED)
        assert "step 'a' is finished" in await why(session)
        assert (await (await session.resume(code="accept")).outcome()).state.trail == ["a", "rested"]


@on_loop
async def test_a_sleeping_session_can_be_accepted_beforehand_and_sleeps_on() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(napping(made("a")), session_id="m-1")
        await settled(session, Status.SLEEPING)
        engine.workflows["memo"] = napping()
        await session.resume(code="accept")
        await settled(session, Status.SLEEPING)
        assert len(await types(session, "definition.changed")) == 1
        clock.advance(HOUR)
        assert (await session.outcome()).state.trail == ["a", "rested"]


@on_loop
async def test_code_is_accepted_or_left_out() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match="code must be 'accept' or None, not 'maybe'"):
            await engine.session("m-1").resume(code="maybe")  # type: ignore[arg-type]
