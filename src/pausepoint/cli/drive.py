"""Drive one session from a command until it ends or needs a person, and report its outcome."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pausepoint.cli.console import facts, money, saving, span
from pausepoint.cli.context import Cli, exit_code_of, run_async
from pausepoint.cli.description import RUN, describe
from pausepoint.cli.exits import CONFLICT, DONE, FAILED, INTERRUPTED, PERSON, TERMINATED, Refused
from pausepoint.cli.fields import start_arguments
from pausepoint.cli.prompts import Later, ask, at_terminal
from pausepoint.cli.text import clock, counted, one_line, short_holder
from pausepoint.cli.ways import ways_to_ask_again, with_commands
from pausepoint.errors import QuestionError

if TYPE_CHECKING:
    from pausepoint.cli.live import View
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.session import Session
    from pausepoint.model.views import Outcome, SessionInfo


SHORT_SLEEP = timedelta(seconds=5)
"""Without a terminal, a command waits for a session that wakes within this time. Longer sleeps are left to a worker."""

DRIVING = "This process drives the session."
"""What a background process logs once it has started or resumed its session."""


FEW = 8
"""How many remembered results that were not used the last lines list."""

_OPEN = ("sleeping", "waiting", "running", "pausing")


async def is_parked(engine: Engine, view: View) -> bool:
    """Return whether the session and its children do nothing but wait for a timer that is not due soon.

    The wait before the next attempt at an operation is no such timer: the session is still at work.
    """
    info = view.info
    if info is None or engine.running or info.status.value not in ("sleeping", "waiting"):
        return False
    tree = [info] if info.status.value == "sleeping" else await engine.sessions(tree=info.session_id, status=_OPEN)
    wakes = [each.wakes_at for each in tree if each.wakes_at is not None]
    if any(each.holder is not None for each in tree):
        return False
    if not wakes or min(wakes) - datetime.now(UTC) <= SHORT_SLEEP:
        return False
    seen = tuple(each.seq for each in tree)
    if view.tried_again[0] != seen:  # this is asked several times a second
        view.tried_again = seen, any([await engine.session(each.session_id).retries() for each in tree])
    return not view.tried_again[1]


class DrivenSession:
    """A session that this command drives until it ends, needs a person, or the program must exit.

    At a terminal its questions are asked right here; ``by`` is the person who answers. Without a terminal, a session
    that sleeps is left to a worker, unless this command ``stays`` as a background process.
    """

    def __init__(self, cli: Cli, workflow: Workflow[Any], by: str | None, stays: bool = False) -> None:
        from pausepoint.cli.live import View

        self.cli = cli
        self.out = cli.out
        self.workflow = workflow
        self.view = View(workflow.name, list(workflow.outline))
        self.by = by
        self.stays = stays
        self.session_id: str | None = None
        self.complete = False
        self.asked: Outcome[Any] | None = None

    def drive(self, begin: Callable[[Engine], Awaitable[Session[Any]]]) -> int:
        """Drive the session and return its exit code."""
        try:
            code: int = run_async(self._drive_until_stop(begin))
            while self.asked is not None:
                code = self._ask(self.asked)
        except KeyboardInterrupt:
            return self._stopped_early("Interrupted", INTERRUPTED)
        except SystemExit as end:  # SIGTERM, or a step that exited the program
            if end.code == TERMINATED:
                return self._stopped_early("Terminated", TERMINATED)
            return self._stopped_early(f"A step exited the program with code {end.code}", FAILED)
        return code

    async def _drive_until_stop(self, begin: Callable[[Engine], Awaitable[Session[Any]]]) -> int:
        from pausepoint.cli.live import Following, display_for
        from pausepoint.engine.engine import Engine

        workflows = self.cli.host.workflows or [self.workflow]
        following = Following(self.view, display_for(self.out))

        async def on_step(session_id: str, step: str, visit: int) -> None:
            if session_id == self.session_id:  # children are not shown
                await following.step(engine, session_id, step, visit)

        async with Engine(
            self.cli.place.url, workflows=workflows, drives="asked", on_step=on_step, hold=self._hold
        ) as engine:
            if self.session_id is None:
                self.view.began = time.monotonic()
            session = await begin(engine)
            self.session_id = session.id
            await engine.session(session.id).drive_only()  # other sessions are left to workers
            if self.stays:
                self.out.line(DRIVING)
            waits = self.stays or (self.out.for_people and self.out.terminal)
            until = asyncio.ensure_future(self._outcome(engine, session))
            try:
                outcome = await following.until(engine, session.id, until, None if waits else is_parked)
            finally:
                until.cancel()
                await asyncio.wait([until])
            if engine.ending:
                return INTERRUPTED  # not used: the end of the engine's block raises KeyboardInterrupt or SystemExit
            self.asked = outcome if outcome.questions and at_terminal(self.out) else None
            return PERSON if self.asked else await self._report(engine, outcome)

    @property
    def _hold(self) -> timedelta:
        """How long a paused step stays in memory: only at a terminal can a person see that it waits."""
        from pausepoint.engine.engine import HOLD

        return HOLD if self.out.terminal and not self.out.as_json else timedelta(0)

    async def _outcome(self, engine: Engine, session: Session[Any]) -> Outcome[Any]:
        """Wait for the outcome. At a terminal, wait again if the session is resumed in place after a pause."""
        while True:
            outcome = await session.outcome()
            if not self._hold or not await _resumed_in_place(engine, session):
                return outcome

    def _ask(self, outcome: Outcome[Any]) -> int:
        """Ask the first question, then continue with the answer. No engine is open while the person thinks."""
        question = outcome.questions[0]
        try:
            value = ask(self.out, question)
        except Later:
            self.asked = None
            return int(run_async(self._report_open_question(outcome)))

        async def begin(engine: Engine) -> Session[Any]:
            try:
                await engine.answer(question.id, value, by=self.by, channel="cli", seen=question.digest)
            except QuestionError as error:  # answered elsewhere or closed; the session's current status is shown
                self.out.note(str(error))
            assert self.session_id is not None
            return engine.session(self.session_id)

        code: int = run_async(self._drive_until_stop(begin))
        return code

    async def _report_open_question(self, outcome: Outcome[Any]) -> int:
        async with self.cli.engine() as engine:
            return await self._report(engine, outcome)

    def check_start(self, values: dict[str, Any], options: dict[str, Any]) -> None:
        """Refuse wrong input before a new store is created, so that a refused command leaves no store behind."""
        if not self.cli.place.exists:
            run_async(self._check_start(values, options))

    async def _check_start(self, values: dict[str, Any], options: dict[str, Any]) -> None:
        from pausepoint.engine.creation import trail_for
        from pausepoint.engine.engine import Engine
        from pausepoint.model.ids import check_session_id

        session_id, at_step = options.get("session_id"), options.get("at_step")
        if session_id is not None:
            check_session_id(session_id)
        if at_step is not None:
            self.workflow.step(at_step)
        trail_for(self.workflow, session_id or "", options.get("folder"))
        state, fields = start_arguments(self.workflow, values)
        async with Engine(":memory:", drives="none") as engine:
            await engine.same_input(self.workflow, state, at_step=at_step, **fields)

    async def start(self, engine: Engine, values: dict[str, Any], options: dict[str, Any]) -> Session[Any]:
        """Start a session, or resume the one that has the id."""
        from pausepoint.cli.live import catch_up
        from pausepoint.errors import AlreadyRunning, InputConflict, UnknownSession

        try:
            if options["session_id"] is not None:
                self.complete = (await engine.session(options["session_id"]).info()).status.value == "completed"
                await catch_up(engine, options["session_id"], self.view)
        except UnknownSession:
            pass
        try:
            state, fields = start_arguments(self.workflow, values)
            session = await engine.start(self.workflow, state, **options, **fields)
        except AlreadyRunning as error:
            raise self._running_elsewhere(options["session_id"], error) from error
        except InputConflict as error:
            resume = self.cli.resume(await engine.session(error.session_id).info())
            raise Refused(
                f"Session {error.session_id!r} already exists with different input. Choose another --session-id, or"
                f" resume it: `{resume}`.",
                CONFLICT,
            ) from error
        if not self.out.terminal:
            self.out.line(f"Session {session.id} of {self.workflow.name}")
        return session

    async def resume(self, engine: Engine, session_id: str, start: str | None, how: dict[str, Any]) -> Session[Any]:
        """Resume a stored session. ``start``: rewind it to this step first."""
        from pausepoint.cli.live import catch_up
        from pausepoint.errors import AlreadyRunning

        options = dict(how)
        session = engine.session(session_id, owner=options.pop("owner", None))
        if start is not None:
            await session.rewind(start, by=how["by"], reason="resume --from")
        before = await session.info()
        self.session_id = session_id
        await catch_up(engine, session_id, self.view)
        try:
            await session.resume(**options)
            self.complete = before.status.value == "completed" and (await session.info()).seq == before.seq
            self.view.resuming = (await session.status()).value in ("running", "pausing")
            return session
        except AlreadyRunning as error:
            raise self._running_elsewhere(session_id, error) from error

    def _running_elsewhere(self, session_id: str, error: Any) -> Refused:
        watch, pause = (self.cli.command(verb, session_id) for verb in ("watch", "pause"))
        steal = f"{self.cli.command('resume', session_id, self.workflow.name)} --steal"
        return Refused(
            f"Session {session_id!r} is running in {error.holder}. Watch it: `{watch}`. Pause it: `{pause}`."
            f" If that process hangs, take the session over: `{steal}`.",
            CONFLICT,
        )

    # report

    async def _report(self, engine: Engine, outcome: Outcome[Any]) -> int:
        from pausepoint.engine import documents

        info = self.view.info
        assert info is not None
        code = exit_code_of(info.status.value)
        if not self.out.for_people:
            asked = [
                documents.QuestionDocument.of(
                    each, answer=self.cli.command("answer", each.id, self.workflow.name) + RUN
                )
                for each in outcome.questions
            ]
            document = documents.outcome(outcome, info, self._command() if code != DONE else None, asked)
            (self.out.record if self.out.as_lines else self.out.document)(document)
            return code
        self._summary(outcome, info)
        if info.status.value == "completed":
            self._results(outcome)
        elif info.status.value == "failed":
            self._failure(info)
        else:
            await self._next_commands(engine, info)
        return code

    def _command(self) -> str:
        assert self.session_id is not None
        return self.cli.command("resume", self.session_id, self.workflow.name)

    def _summary(self, outcome: Outcome[Any], info: SessionInfo) -> None:
        from pausepoint.cli.live import chart

        if self.out.terminal and self.out.shows_steps:
            for line in chart(self.out, self.view):
                self.out.line(line)
        name = f"Session {info.session_id} of {info.workflow}"
        if self.complete:
            self.out.line(f"{name} is already complete")
            return
        spent = f", {money(info.spent_usd)}" if info.spent_usd else ""
        says_all = self.out.shows_steps or info.status.value != "completed"
        is_over = info.status.value in ("completed", "failed", "cancelled")
        if says_all or spent:
            self.out.line(
                f"{name} {'' if is_over else 'is '}{self.out.status(info.status.value)}"
                f" after {span(self.view.elapsed)}{spent}"
            )
        saved = saving(outcome.saved_time, outcome.saved_usd)
        if saved and (says_all or outcome.saved_usd):
            visits = counted(outcome.skipped_visits, "visit") if outcome.skipped_visits else "operations"
            self.out.line(f"Saved by resuming: {saved} ({visits} done before)")
        if unused := self.view.unused:
            self.out.line("Remembered results that were not used:")
            for summary in unused[:FEW]:
                self.out.line(f"  {one_line(summary)}")
            if len(unused) > FEW:
                self.out.line(f"  and {len(unused) - FEW:,} more")

    def _results(self, outcome: Outcome[Any]) -> None:
        from pausepoint.cli.text import value
        from pausepoint.engine import documents

        host = self.cli.host
        if host.result is not None and self.workflow is host.workflows[0]:
            self.out.say(host.result(outcome))
            return
        written = {path.partition(".")[0]: None for step in self.workflow.steps for path in step.places}
        room = self.out.width - max(map(len, written), default=0) - 2 if self.out.terminal else None
        state = documents.state(outcome.state)
        if (returns := self.workflow.returns) is not None:
            result = state[returns]
            self.out.line(result if isinstance(result, str) else value(result))
            return
        facts(self.out, {name: value(state[name], room) for name in written if name in state})

    def _failure(self, info: SessionInfo) -> None:
        from pausepoint.cli.text import traceback

        failure = info.failure
        if failure is not None:
            for line in traceback(self.cli, info):
                self.out.note(line, as_it_is=True)
            tries = f" after {failure.attempts} attempts" if failure.attempts > 1 else ""
            word = self.cli.host.step_word.capitalize()
            line = one_line(f"{word} {failure.step} failed{tries}: {failure.type}: {failure.message}")
            self.out.note(with_commands(line, self.cli, info))
        for label, command in [*ways_to_ask_again(self.cli, info), ("Resume:", self._command())]:
            self.out.note(f"{label}  {command}")

    async def _next_commands(self, engine: Engine, info: SessionInfo) -> None:
        for line in (await describe(engine, info, self.cli)).lines(self.cli, then=self._command()):
            self.out.note(line)

    def _stopped_early(self, why: str, code: int) -> int:
        """Report that the program must exit. The last line is the command that resumes the session."""
        from pausepoint.engine import documents

        info = self.view.info
        if self.session_id is None:
            self.out.note(f"{why} before anything was stored.")
        elif self.out.for_people and info is not None and _runs_elsewhere(info):
            self.out.note(f"{why}. Session {self.session_id} continues in {short_holder(info.holder or '')}.")
            self.out.note(f"Watch:  {self.cli.command('watch', self.session_id)}")
        elif self.out.for_people:
            ended = info is not None and info.status.value == "completed"
            at = f" at {info.step}#{info.visit}" if info is not None and info.step else ""
            if info is not None and info.status.value == "sleeping" and info.wakes_at:
                at += f", sleeping until {clock(info.wakes_at)}"
            self.out.note(f"{why}{' after the session completed' if ended else at}. Finished work is kept.")
            self.out.note(f"Resume:  {self._command()}")
        elif info is not None:
            document = documents.StoppedDocument.of(info, resume=self._command())
            (self.out.record if self.out.as_lines else self.out.document)(document)
        return code


def _runs_elsewhere(info: SessionInfo) -> bool:
    """Return whether another process drives the session, and this command only watched it."""
    return info.holder is not None and not info.holder.startswith(f"process {os.getpid()} ")


async def _resumed_in_place(engine: Engine, session: Session[Any]) -> bool:
    """Wait while the step of a paused session stays in memory. Return whether the session was resumed."""
    kept = False
    async with aclosing(engine.session(session.id).watch()) as news:
        async for info in news:
            if info.kept_by is None:
                return kept and info.holder is not None
            kept = True
    return False
