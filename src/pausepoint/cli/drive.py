"""Drive one session from a command until it ends or needs a person, and report how it stands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pausepoint.cli.console import facts, money, span
from pausepoint.cli.context import Cli, needs_somebody, run_async
from pausepoint.cli.exits import CONFLICT, DONE, FAILED, INTERRUPTED, PERSON, TERMINATED, Refused
from pausepoint.cli.fields import given_as
from pausepoint.cli.prompts import Later, at_terminal, prompted
from pausepoint.cli.text import RUN, counted
from pausepoint.errors import QuestionError

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.session import Session
    from pausepoint.model.views import Outcome, SessionInfo


class Ride:
    """One session that is driven from here until it ends, needs somebody, or this program has to end.

    At a terminal somebody is there: what it asks is asked in place, by ``by``.
    """

    def __init__(self, cli: Cli, workflow: Workflow[Any], by: str | None) -> None:
        from pausepoint.cli.live import View

        self.cli = cli
        self.out = cli.out
        self.workflow = workflow
        self.view = View(workflow.name, list(workflow.outline))
        self.by = by
        self.session_id: str | None = None
        self.complete = False
        self.asked: Outcome[Any] | None = None

    def driven(self, begin: Callable[[Engine], Awaitable[Session[Any]]]) -> int:
        """To the end, whichever it is; returns its exit code."""
        try:
            code: int = run_async(self._drive(begin))
            while self.asked is not None:
                code = self._ask(self.asked)
        except KeyboardInterrupt:
            return self._left("Interrupted", INTERRUPTED)
        except SystemExit as end:  # SIGTERM; or a step that ended the program
            if end.code == TERMINATED:
                return self._left("Terminated", TERMINATED)
            return self._left(f"A step ended the program ({end.code})", FAILED)
        return code

    async def _drive(self, begin: Callable[[Engine], Awaitable[Session[Any]]]) -> int:
        from pausepoint.cli.live import Following, show_for
        from pausepoint.engine.engine import Engine

        workflows = self.cli.host.workflows or [self.workflow]
        following = Following(self.view, show_for(self.out))

        async def on_step(session_id: str, step: str, visit: int) -> None:
            if session_id == self.session_id:  # not a child of it
                await following.step(engine, session_id, step, visit)

        async with Engine(self.cli.place.url, workflows=workflows, drives="asked", on_step=on_step) as engine:
            if self.session_id is None:
                self.view.began = time.monotonic()
            session = await begin(engine)
            self.session_id = session.id
            await engine.drive_only(session.id)  # a worker is for the others
            until = asyncio.ensure_future(session.outcome())
            try:
                outcome = await following.until(engine, session.id, until)
            finally:
                until.cancel()
            if engine.ending:
                return INTERRUPTED  # held_by_guard the engine's block says how this program ends
            self.asked = outcome if outcome.questions and at_terminal(self.out) else None
            return PERSON if self.asked else await self._told(engine, outcome)

    def _ask(self, outcome: Outcome[Any]) -> int:
        """Put the first question, and go on with its answer. No engine is open meanwhile: waiting holds nothing."""
        question = outcome.questions[0]
        try:
            value = prompted(self.out, question)
        except Later:
            self.asked = None
            return int(run_async(self._told_later(outcome)))

        async def begin(engine: Engine) -> Session[Any]:
            try:
                await engine.answer(question.id, value, by=self.by, channel="cli", seen=question.digest)
            except QuestionError as error:  # answered elsewhere, or over: how the session stands now is shown
                self.out.note(str(error))
            assert self.session_id is not None
            return await engine.session(self.session_id)

        code: int = run_async(self._drive(begin))
        return code

    async def _told_later(self, outcome: Outcome[Any]) -> int:
        async with self.cli.engine() as engine:
            return await self._told(engine, outcome)

    async def start(self, engine: Engine, values: dict[str, Any], options: dict[str, Any]) -> Session[Any]:
        """A new session, or the one that has the id."""
        from pausepoint.cli.live import catch_up
        from pausepoint.errors import AlreadyRunning, UnknownSession

        try:
            if options["session_id"] is not None:
                self.complete = (await engine.info(options["session_id"])).status.value == "completed"
                await catch_up(engine, options["session_id"], self.view)
        except UnknownSession:
            pass
        try:
            state, fields = given_as(self.workflow, values)
            session = await engine.start(self.workflow, state, **options, **fields)
        except AlreadyRunning as error:
            raise self._elsewhere(options["session_id"], error) from error
        if not self.out.terminal:
            self.out.line(f"Session {session.id} of {self.workflow.name}")
        return session

    async def resume(self, engine: Engine, session_id: str, start: str | None, how: dict[str, Any]) -> Session[Any]:
        """A stored session; from an earlier step on, if asked."""
        from pausepoint.cli.live import catch_up
        from pausepoint.errors import AlreadyRunning

        if start is not None:
            await engine.rewind(session_id, start, by=how["by"], reason="resume --from")
        before = await engine.info(session_id)
        self.session_id = session_id
        await catch_up(engine, session_id, self.view)
        try:
            session = await engine.resume(session_id, **how)
            self.complete = before.status.value == "completed" and (await session.info()).seq == before.seq
            self.view.resuming = (await session.status()).value in ("running", "pausing")
            return session
        except AlreadyRunning as error:
            raise self._elsewhere(session_id, error) from error

    def _elsewhere(self, session_id: str, error: Any) -> Refused:
        watch, pause = (self.cli.command(verb, session_id) for verb in ("watch", "pause"))
        return Refused(
            f"session {session_id} is driven by {error.holder}; follow it: {watch}; stop it: {pause};"
            " or take it over with --steal",
            CONFLICT,
        )

    # how it stands

    async def _told(self, engine: Engine, outcome: Outcome[Any]) -> int:
        from pausepoint.engine import documents

        info = self.view.info
        assert info is not None
        code = needs_somebody(info.status.value)
        if not self.out.for_people:
            asked = [
                documents.question(each, self.cli.command("answer", each.id, self.workflow.name) + RUN)
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
            await self._ways(engine, info)
        return code

    def _command(self) -> str:
        assert self.session_id is not None
        return self.cli.command("resume", self.session_id, self.workflow.name)

    def _summary(self, outcome: Outcome[Any], info: SessionInfo) -> None:
        from pausepoint.cli.live import chart

        if self.out.terminal:
            for line in chart(self.out, self.view):
                self.out.line(line)
        name = f"Session {info.session_id} of {info.workflow}"
        if self.complete:
            self.out.line(f"{name} is already complete")
            return
        spent = f", {money(info.spent_usd)}" if info.spent_usd else ""
        is_over = info.status.value in ("completed", "failed", "cancelled")
        self.out.line(
            f"{name} {'' if is_over else 'is '}{self.out.status(info.status.value)}"
            f" after {span(self.view.elapsed)}{spent}"
        )
        if outcome.skipped_visits or outcome.saved_time or outcome.saved_usd:
            cost = f" and {money(outcome.saved_usd)}" if outcome.saved_usd else ""
            visits = counted(outcome.skipped_visits, "visit") if outcome.skipped_visits else "operations"
            self.out.line(f"Saved by resuming: {span(outcome.saved_time)}{cost} ({visits} done before)")

    def _results(self, outcome: Outcome[Any]) -> None:
        from pausepoint.cli.text import value
        from pausepoint.engine import documents

        host = self.cli.host
        if host.result is not None and self.workflow is host.workflows[0]:
            self.out.line(host.result(outcome))
            return
        written = {path.partition(".")[0]: None for step in self.workflow.steps for path in step.places}
        room = self.out.width - max(map(len, written), default=0) - 2 if self.out.terminal else None
        state = documents.state(outcome.state)
        facts(self.out, {name: value(state[name], room) for name in written if name in state})

    def _failure(self, info: SessionInfo) -> None:
        from pausepoint.cli.text import one_line, traceback

        failure = info.failure
        if failure is not None:
            for line in traceback(self.cli, info):
                self.out.note(line, as_it_is=True)
            tries = f" after {failure.attempts} attempts" if failure.attempts > 1 else ""
            self.out.note(one_line(f"{failure.step} failed{tries}: {failure.type}: {failure.message}"))
        self.out.note(f"Resume: {self._command()}")

    async def _ways(self, engine: Engine, info: SessionInfo) -> None:
        from pausepoint.cli.text import standing

        for line in await standing(self.cli, engine, info, then=self._command()):
            self.out.note(line)

    def _left(self, why: str, code: int) -> int:
        """This program has to end. What is done is kept; the last line is the command that goes on."""
        from pausepoint.engine import documents

        info = self.view.info
        if self.session_id is None:
            self.out.note(f"{why} before anything was stored")
        elif self.out.for_people:
            ended = info is not None and info.status.value == "completed"
            at = f" at {info.step}#{info.visit}" if info is not None and info.step else ""
            self.out.note(f"{why}{' when it had completed' if ended else at}; what is done is kept.")
            self.out.note(f"Resume: {self._command()}")
        elif info is not None:
            document = documents.stopped(info, self._command())
            (self.out.record if self.out.as_lines else self.out.document)(document)
        return code
