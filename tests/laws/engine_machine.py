"""Run any history of the public verbs over scripted workflows, and compare with `tests.laws.engine_model`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from pausepoint.errors import AlreadyRunning, InputConflict, VerbRefused
from pausepoint.model.sessions import SessionRow
from pausepoint.model.views import Listing, SessionInfo
from tests.laws.engine_model import IDS, OVER, EngineModel, S
from tests.support.mortal import crash, woke
from tests.support.scripted import ACTS, NAP, WAITS, Course, Desk

MOST = 3
"""The number of sessions that are started; the other ids are for forks."""

engines = st.sampled_from((0, 1))
modes = st.sampled_from(("finish", "abort"))
# Most verbs affect a waiting session, so waits are drawn more often.
acts = st.sampled_from((*ACTS, *WAITS, "wait", "work", *WAITS))
plans = st.lists(acts, min_size=2, max_size=6)
rarely = st.sampled_from((False, False, False, False, True))
HOUR, YEAR = 3600, 31_536_000
jumps = st.sampled_from((-1, 1, -HOUR, HOUR, -YEAR, YEAR, -50 * YEAR, 50 * YEAR))
spans = st.sampled_from((1, NAP / 2, NAP, HOUR))
LOOKS_AGAIN = 31
"""Seconds after which every engine has noticed that the wall clock was set."""


class EngineMachine(EngineModel):
    """The rules: the public verbs, the engines and the clock."""

    # the verbs

    def unused(self, most: int) -> str | None:
        free = [each for each in IDS if each not in self.begun]
        return free[0] if free and len(self.begun) < most else None

    @precondition(lambda self: self.unused(MOST))
    @rule(plan=plans, paused=rarely, budget=st.sampled_from((None, None, 1)), number=engines)
    def start(self, plan: list[str], paused: bool, budget: int | None, number: int) -> None:
        engine, session_id = self.engine(number), self.unused(MOST)
        assert session_id is not None

        async def start() -> None:
            await engine.start(
                self.world.workflow, Desk(plan=plan), session_id=session_id, budget=budget, paused=paused
            )

        self.does("nothing", (), start)
        self.begins(session_id, Course(Desk(plan=plan)), paused)

    def begins(self, session_id: str, course: Course, paused: bool) -> bool:
        """Add the session to the model if it was stored."""
        if self.run(self.engine(0).store.get(session_id)) is None:
            return False
        self.begun[session_id] = course
        self.sent[session_id], self.inherited[session_id] = [], set()
        for troubles in [key for key in self.world.troubles if key[0] == session_id]:
            del self.world.troubles[troubles]
        stands = paused or self.run(self.engine(0).standing_pause()) is not None
        assert not stands or self.run(self.statuses())[session_id] is S.PAUSED
        return True

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines)
    def start_with_other_input(self, data: st.DataObject, number: int) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        other = Desk(plan=[*self.begun[session_id].desk.plan, "ok"])

        async def conflict() -> None:
            with pytest.raises(InputConflict):
                await engine.start(self.world.workflow, other, session_id=session_id)

        self.does("nothing", (), conflict)

    def draw(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.begun)), label="session")

    @precondition(lambda self: self.begun)
    @rule(
        data=st.data(), number=engines, steal=st.booleans(), budget=st.sampled_from((None, None, 3)), wake=st.booleans()
    )
    def resume(self, data: st.DataObject, number: int, steal: bool, budget: int | None, wake: bool) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        before = self.run(self.row(session_id))
        status = before.status

        async def resume() -> None:
            if status is S.CANCELLED:
                with pytest.raises(VerbRefused):
                    await engine.session(session_id).resume()
            elif status is S.RUNNING and not steal and not woke(engine, session_id):
                with pytest.raises(AlreadyRunning):
                    await engine.session(session_id).resume(budget=budget)
            else:
                await engine.session(session_id).resume(steal=steal, budget=budget, wake=wake)

        held = status in (S.RUNNING, S.PAUSING)
        timer = wake and status is S.SLEEPING
        verb = "steal" if steal and held else "time passes" if timer else "resume"
        if self.does(verb, [session_id], resume):
            self.check_timer(before, self.run(self.row(session_id)), wake)

    def check_timer(self, before: SessionRow, after: SessionRow, wake: bool) -> None:
        """Check that a pause only moved the timer back, and that a timer that was ended is over."""
        if after.status is not S.SLEEPING or (before.step, before.visit) != (after.step, after.visit):
            return
        if before.wakes_at is not None:
            assert after.wakes_at is not None
            assert after.wakes_at >= before.wakes_at
            assert not wake

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines, mode=modes, everything=st.booleans(), freeze=st.booleans())
    def pause(self, data: st.DataObject, number: int, mode: Any, everything: bool, freeze: bool) -> None:
        session_id = None if everything else self.draw(data)
        engine = self.engine(number)

        async def pause() -> None:
            before = await self.statuses()
            asked: Any = {"mode": mode, "by": "ann", "reason": "lunch", "freeze": freeze}
            verb = engine.pause_all if session_id is None else engine.session(session_id).pause
            infos: Listing[SessionInfo] = await verb(**asked)
            for info in infos:
                old = before.get(info.session_id)
                assert info.status in OVER or info.pause_requested
                if old is not None and old in (S.RUNNING, S.PAUSING):
                    # Sessions are listed after everything was paused, so an aborted step may have stopped already.
                    assert info.status is S.PAUSING or (everything and info.status is S.PAUSED)
                elif old is not None:
                    assert info.status is (old if old in OVER else S.PAUSED)

        what = f"pause everything {mode}" if everything else f"pause {mode}"
        self.does(what, None if everything else [str(session_id)], pause)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), seconds=st.sampled_from((1, 10)), number=engines)
    def freeze_for_a_while(self, data: st.DataObject, seconds: int, number: int) -> None:
        """Advance the clock while the timers of a session are frozen."""
        session_id, engine = self.draw(data), self.engine(number)
        before = self.run(self.row(session_id))
        if before.status is not S.SLEEPING or before.frozen:
            return

        async def freeze() -> None:
            await engine.session(session_id).pause(freeze=True)
            self.clock.advance(seconds)
            await self.quiet()
            await engine.session(session_id).resume()

        if self.does("time passes", None, freeze):
            after = self.run(self.row(session_id))
            assert after.status is S.SLEEPING
            assert after.wakes_at == (before.wakes_at or 0) + seconds * 1_000_000

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines, really=rarely)
    def cancel(self, data: st.DataObject, number: int, really: bool) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        if not really and self.run(self.statuses())[session_id] not in OVER:
            return  # otherwise no session would remain to test
        self.does("cancel", [session_id], lambda: engine.session(session_id).cancel(by="ann"))

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines, count=st.integers(1, 3))
    def send(self, data: st.DataObject, number: int, count: int) -> None:
        session_id = self.draw(data)
        for _ in range(count):
            if self.run(self.statuses())[session_id] in OVER:
                break
            self.messages += 1
            self.does("send", [session_id], lambda: self.engine(number).session(session_id).send(self.messages))
            expected = [*self.sent[session_id], self.messages]
            self.sent[session_id] = self.run(self.stored_messages(session_id, expected))

    async def stored_messages(self, session_id: str, expected: list[int]) -> list[int]:
        """Return the stored messages. The last one may be missing if an engine died meanwhile."""
        signals = await self.engine(0).store.signals((await self.row(session_id)).key, 0)
        found = [int(bytes(signal.payload)[9:-1]) for signal in signals if signal.kind == "message"]
        assert found in (expected, expected[:-1]), (found, expected)
        return found

    @precondition(lambda self: self.world.blocked())
    @rule(data=st.data())
    def open_the_gate(self, data: st.DataObject) -> None:
        waiting = sorted({ctx.session_id for ctx in self.world.blocked()})
        session_id = data.draw(st.sampled_from(waiting), label="gate")

        async def open_it() -> None:
            self.world.open(session_id)

        parent = self.run(self.row(session_id)).parent_id
        self.does("open the gate", [session_id, parent or ""], open_it)

    @rule(shut=st.booleans())
    def turn_the_door(self, shut: bool) -> None:
        self.world.shut = shut

    # engines and time

    def several(self) -> bool:
        return not self.in_memory

    @precondition(lambda self: self.several() and len(self.engines) < 2)
    @rule()
    def open_another(self) -> None:
        self.run(self.open(1 if 0 in self.engines else 0))

    @precondition(several)
    @rule(number=engines, kindly=st.booleans())
    def end_an_engine(self, number: int, kindly: bool) -> None:
        number = number if number in self.engines else next(iter(self.engines))

        async def end() -> None:
            engine = self.engines.pop(number)
            await (engine.close() if kindly else crash(engine))

        self.does("end of a holder", None, end)

    @precondition(several)
    @rule(number=engines, writes=st.integers(0, 8), after=st.booleans())
    def doom(self, number: int, writes: int, after: bool) -> None:
        self.store(self.engine(number)).doom(writes, after)

    @rule(seconds=jumps)
    def jump(self, seconds: int) -> None:
        """Set the wall clock, and let the engines notice. The model keeps the clock after 1970."""

        async def jump() -> None:
            self.clock.jump(max(seconds, -self.clock.now() // 1_000_000))
            self.clock.advance(LOOKS_AGAIN)

        self.does("time passes", None, jump)

    @rule(seconds=spans)
    def let_time_pass(self, seconds: float) -> None:
        async def advance() -> None:
            self.clock.advance(seconds)

        self.does("time passes", None, advance)

    # at every quiet moment

    @invariant()
    def the_sessions_are_what_the_model_says(self) -> None:
        self.run(self.check())
