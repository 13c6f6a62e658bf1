"""A durable session in which N agents work through a graph of tasks under one pause button."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Any

from pausepoint.clock import to_micros
from pausepoint.codec.values import fingerprint
from pausepoint.definition.steps import step
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.engine import Engine
from pausepoint.errors import (
    AlreadyRunning,
    DefinitionError,
    InputConflict,
    UnknownSession,
    VerbRefused,
    did_you_mean,
)
from pausepoint.model.budgets import Amount
from pausepoint.model.sessions import Pause, Status
from pausepoint.orchestrator.bus import EventBus, OrchestratorPaused, TaskCompleted, TaskFailed, TaskStarted
from pausepoint.orchestrator.controller import OrchestratorState, PauseResumeController, Phase
from pausepoint.orchestrator.graph import Task, check, dependants
from pausepoint.orchestrator.history import SessionLog, SessionStateStore
from pausepoint.orchestrator.registry import IDLE_TIMEOUT
from pausepoint.orchestrator.runs import RUN, RunReader, RunReport, TaskStatus, statuses
from pausepoint.orchestrator.safety import Safety, SafetyWatch
from pausepoint.orchestrator.sessions import RunAgents
from pausepoint.orchestrator.snapshot import SnapshotStore
from pausepoint.orchestrator.workflow import Performance, Plan, TaskAgent, Work
from pausepoint.runtime.context import Context

SAFETY = "safety stop"
"""The author (``by``) of a pause that a run requests on its own."""

PATIENCE = 5.0
"""How many seconds to wait for the event of the process that ran the agents, before this process emits one."""


class Orchestrator:
    """Runs a graph of tasks with N agents: ``work(agent)`` does the task of one agent.

    A run is the session ``session_id`` (by default ``name``) of the workflow ``name``, so every verb of the engine and
    every command works on it, in any process. Create one orchestrator per name and engine. ``events`` are those that
    ``work`` emits itself; one with a value ``task`` counts as the last event of that task.
    """

    def __init__(
        self, engine: Engine, name: str, work: Work, *, agents: int = 4, session_id: str | None = None,
        snapshot_store: SnapshotStore | None = None, safety: Safety | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT, events: Sequence[str] = (),
    ) -> None:  # fmt: skip
        if agents < 1:
            raise ValueError(f"agents must be at least 1, not {agents}.")
        self.engine = engine
        self.work = work
        self.agents = agents
        self.session_id = session_id or name
        self.workflow = self._workflow(name, events)
        engine.register(self.workflow)
        self.bus = EventBus(SessionLog(engine, self.session_id))
        self.registry = RunAgents(engine, self.session_id, self._tasks)
        self.controller = PauseResumeController(
            self.bus,
            snapshot_store or SessionStateStore(engine, self.session_id),
            self.registry,
            idle_timeout=idle_timeout,
            clock=engine.clock,
        )
        self._safety = SafetyWatch(safety or Safety())
        self._elsewhere = False  # whether another process drove the run when it was last checked
        self._watching: asyncio.Task[None] | None = None
        self._trouble: BaseException | None = None

    def _workflow(self, name: str, events: Sequence[str]) -> Workflow[Plan]:
        @step
        async def work(plan: Plan, ctx: Context) -> None:
            await Performance(plan, self.agents, self.work, self, ctx).run()

        kinds = (TaskStarted, TaskCompleted, TaskFailed)
        known = [kind.in_history() for kind in kinds]
        # The snapshot is written into the paused session, which would take a held step over.
        return Workflow(name, state=Plan, steps=[work], events=[*known, *events], hold=0)

    # the button

    def get_state(self) -> OrchestratorState:
        """See `PauseResumeController.get_state`."""
        return self.controller.get_state()

    @property
    def phase(self) -> Phase:
        """See `PauseResumeController.phase`."""
        return self.controller.phase

    async def pause(self, reason: str = "", by: str | None = None) -> None:
        """Stop every agent after its current step; see `PauseResumeController.pause`."""
        await self._look()
        await self.controller.pause(reason, by, said=self._said)

    async def resume(self, budget: Amount | None = None) -> None:
        """Resume all agents from the snapshot, with a new budget if given; see `PauseResumeController.resume`.

        A run that another process drives and that is still pausing continues there: only the pause is withdrawn.
        """
        if await self._withdraw(budget):
            return
        await self._look()
        if self.phase is Phase.RUNNING:
            if budget is not None:
                raise VerbRefused(
                    f"Run {self.session_id!r} is not paused. Pause it before you change its budget.",
                    session_id=self.session_id, status=(await self.engine.session(self.session_id).info()).status.value,
                )  # fmt: skip
            return
        await self._reset_safety()
        if budget is not None:
            self.registry.budget = budget
        try:
            await self.controller.resume()
        finally:
            self.registry.budget = None
        self._watch()

    async def _withdraw(self, budget: Amount | None) -> bool:
        """Withdraw the pause of a run that is still pausing in another process. Return False if there is none."""
        if await self._found() is not Status.PAUSING or self.session_id in self.engine.running:
            return False
        if (await self.engine.session(self.session_id).info()).holder is None:
            return False
        await self.engine.session(self.session_id).resume(budget=budget, here=False)
        self.registry.forget()
        return True

    # the run

    async def start(
        self, tasks: Sequence[Task] | None = None, *, by: str | None = None, budget: Amount | None = None,
        owner: str | None = None, tags: Sequence[str] = (), keep_for: timedelta | None = None,
    ) -> None:  # fmt: skip
        """Start the run, or continue it after its program was killed or ended. Return when the run is stored.

        Without tasks, an existing run continues. A paused run stays paused until `resume`. A graph that cannot be
        completed raises `DefinitionError` before anything is stored. Tasks that differ from those of an existing run
        raise `InputConflict`; use `replan` to change them.
        """
        if tasks is not None:
            check(tasks)
        status = await self._found()
        if status is None:
            if tasks is None:
                raise DefinitionError(f"Run {self.session_id!r} does not exist. Pass its tasks to start().")
            await self.engine.start(
                self.workflow, Plan(tasks=list(tasks)), session_id=self.session_id, by=by, budget=budget, owner=owner,
                tags=[*([tags] if isinstance(tags, str) else tags), RUN], keep_for=keep_for,
            )  # fmt: skip
            self._watch()
            return
        if tasks is not None and list(tasks) != (await self._plan()).tasks:
            raise InputConflict(
                f"Run {self.session_id!r} was started with other tasks. Use replan(tasks) to change them, or start"
                " another run with another session_id.",
                session_id=self.session_id,
            )
        if status in (Status.PAUSED, Status.PAUSING):
            await self._join_pause()
            return
        await self._reset_safety()
        await self.engine.session(self.session_id, owner=owner).resume(by=by, budget=budget)
        await self._note_running()
        self._watch()

    async def _look(self) -> None:
        """Bring the phase up to date: another process may have resumed or paused the run."""
        status = await self._found()
        if status is not None:
            await self._see_who()
        if status in (Status.PAUSED, Status.PAUSING):
            if self.phase is Phase.RUNNING:
                await self._join_pause()
        elif status not in (None, Status.COMPLETED, Status.CANCELLED):
            await self._note_running()

    async def _see_who(self) -> None:
        """Record whether another process drives the run. Once the run is parked, this cannot be known."""
        if (await self.engine.session(self.session_id).info()).holder is not None:
            self._elsewhere = self.session_id not in self.engine.running

    async def _found(self) -> Status | None:
        try:
            return (await self.engine.session(self.session_id).info()).status
        except UnknownSession:
            return None

    async def _join_pause(self) -> None:
        """Accept a pause that was made before this process opened the run. If its snapshot is missing, save one."""
        snapshot = await self.controller.snapshot_store.load_snapshot()
        pauses = await self.engine.session(self.session_id).pauses()
        if snapshot is not None and all(pause.created_at // 1000 <= snapshot.paused_at for pause in pauses):
            self.controller.found_paused()
        else:
            await self._follow()

    async def _follow(self) -> bool:
        """Save a snapshot of a pause that someone else requested, and emit its event. Return False if it has ended."""
        await self.registry.remember()
        pauses = await self.engine.session(self.session_id).pauses()
        if await self._found() not in (Status.PAUSED, Status.PAUSING):
            self.registry.forget()
            return False
        by = next((pause.by for pause in pauses if pause.by), None)
        reason = "; ".join(filter(None, (pause.reason for pause in pauses)))
        await self.controller.pause(reason, by, signalled=await self._asked_for(pauses), said=self._said)
        return True

    async def _said(self) -> OrchestratorPaused | None:
        """Return the event that the process with the agents emitted for the pause; wait for it for a short time.

        None if there is no such process, if it was killed, or if it emits nothing. Then this process emits the event.
        """
        if not self._elsewhere:
            return None
        pauses = await self.engine.session(self.session_id).pauses()
        since, cursor = max((pause.created_at // 1000 for pause in pauses), default=0), ""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), aclosing(self.engine.session(self.session_id).watch()) as news:
                async for info in news:
                    if info.holder is not None:
                        break
                    for logged in await self.bus.replay(cursor):
                        cursor = logged.cursor
                        if isinstance(logged.event, OrchestratorPaused) and logged.event.timestamp >= since:
                            return logged.event
        return None

    async def _asked_for(self, pauses: Sequence[Pause]) -> float:
        """Return the seconds since a pause was requested, or until it took effect if it has."""
        info = await self.engine.session(self.session_id).info()
        updated_at = to_micros(info.updated_at)
        asked = max(min((pause.created_at for pause in pauses), default=updated_at), to_micros(info.created_at))
        return max(0, (updated_at if info.holder is None else self.engine.clock.now()) - asked) / 1e6

    async def _note_running(self) -> None:
        """Set the phase to running after the session was resumed without this controller."""
        if self.phase is Phase.PAUSED:
            self.registry.forget()
            await self._reset_safety()
            with suppress(AlreadyRunning):  # another process drives the run, and writes its log
                await self.controller.found_running()

    async def outcome(self) -> RunReport:
        """Wait until no agent works: all tasks are done, or the rest failed, wait for an answer, or are paused."""
        await asyncio.wait([self._watch()])
        if self._trouble is not None:
            raise self._trouble
        return await self.report()

    async def stand_by(self) -> bool:
        """Wait until someone resumes the stopped run, in any process, or answers its questions.

        Return True if this process should continue the run: call `start`. Nothing runs before that, so you can check
        what has changed. Return False if another process continues the run, if the run has ended, or if this engine is
        ending. Open the engine with ``drives="asked"``; see `Session.stand_by`.
        """
        info = await self.engine.session(self.session_id).stand_by()
        if self.engine.ending:
            return False
        # This engine may have picked the run up a moment before it stood by.
        ready = info.holder is None and info.status in (Status.READY, Status.CREATED)
        return ready or self.session_id in self.engine.running

    async def run(self, tasks: Sequence[Task], **how: Any) -> RunReport:
        """Call `start`, then `outcome`."""
        await self.start(tasks, **how)
        return await self.outcome()

    def _watch(self) -> asyncio.Task[None]:
        if self._watching is None or self._watching.done():
            self._trouble = None
            self._watching = asyncio.get_running_loop().create_task(self._watched(), name=f"watch {self.session_id}")
        return self._watching

    async def _watched(self) -> None:
        """Wait until the run stops. A pause that another process or an error caused is treated like our own."""
        try:
            await self._see_who()
            while (await self.engine.session(self.session_id).outcome()).status is Status.PAUSED:
                if await self._follow():
                    return
        except Exception as error:
            self._trouble = error

    # status

    async def report(self) -> RunReport:
        """Return the run with its tasks, read from the store. Works in any process; see `RunReader`."""
        return await RunReader(self.engine, self.session_id).read()

    async def _tasks(self) -> list[TaskStatus]:
        return statuses(await self._plan(), [event async for event in self.engine.session(self.session_id).events()])

    async def _plan(self, *tasks: str) -> Plan:
        """Return the stored plan. Raise `DefinitionError` if it lacks one of ``tasks``."""
        plan = await self.engine.session(self.session_id).state()
        assert isinstance(plan, Plan)
        known = {each.id for each in plan.tasks}
        for task in tasks:
            if task not in known:
                raise DefinitionError(f"Run {self.session_id!r} has no task {task!r}{did_you_mean(task, known)}")
        return plan

    # changes to the tasks while the run is parked

    async def skip(self, task: str, reason: str = "", by: str | None = None) -> None:
        """Mark a task as done without running it. Tasks that need it can begin. The run must not be running."""
        plan = await self._plan(task)
        if any(each.task.id == task and each.status == "done" for each in await self._tasks()):
            raise VerbRefused(
                f"Task {task!r} is done, and its result is in use. Call redo() to run it again.",
                session_id=self.session_id, status=(await self.engine.session(self.session_id).info()).status.value,
            )  # fmt: skip
        await self._edit(f"skip {task}", reason, by, skipped=plan.skipped | {task: reason})

    async def redo(self, task: str | Sequence[str], reason: str = "", by: str | None = None) -> list[str]:
        """Run tasks, and all that need them, again at the next resume. Return their ids."""
        tasks = [task] if isinstance(task, str) else list(task)
        plan = await self._plan(*tasks)
        chosen = dependants(plan.tasks, *tasks)
        skipped = {id: why for id, why in plan.skipped.items() if id not in chosen}
        await self._edit(f"redo {_named(tasks)}", reason, by, again=_raised(plan, chosen), skipped=skipped)
        return chosen

    async def retry(self, *tasks: str, reason: str = "", by: str | None = None) -> list[str]:
        """Run failed tasks, by default all of them, again at the next resume. Return their ids."""
        report = await self.report()
        for task in tasks:
            if task not in report.failed:
                raise VerbRefused(
                    f"Task {task!r} is not one of the failed tasks{did_you_mean(task, report.failed)} To run a finished"
                    " task again, use redo().",
                    session_id=self.session_id, status=report.status.value,
                )  # fmt: skip
        chosen = list(tasks or report.failed)
        if chosen:
            await self._edit(f"retry {_named(chosen)}", reason, by, again=_raised(await self._plan(), chosen))
        return chosen

    async def replan(self, tasks: Sequence[Task], reason: str = "", by: str | None = None) -> list[str]:
        """Replace the tasks of the run. Finished tasks stay done, unless their ``data`` changed.

        Changed tasks, and all that need them, run again at the next resume. Return their ids.
        """
        check(tasks)
        plan = await self._plan()
        data = {task.id: fingerprint(task.data) for task in plan.tasks}
        changed = [task.id for task in tasks if data.get(task.id, fingerprint(task.data)) != fingerprint(task.data)]
        chosen = list(dict.fromkeys(each for id in changed for each in dependants(tasks, id)))
        ids = {task.id for task in tasks}
        skipped = {id: why for id, why in plan.skipped.items() if id in ids and id not in chosen}
        # Count removed tasks up too: a removed task that is added again later is a new task.
        again = _raised(plan, [*chosen, *(id for id in data if id not in ids)])
        await self._edit("change the tasks", reason, by, tasks=list(tasks), again=again, skipped=skipped)
        return chosen

    async def _edit(self, what: str, reason: str, by: str | None, **fields: Any) -> None:
        reason = f"{what}: {reason}" if reason else what
        if await self._found() is Status.COMPLETED:
            await self.engine.session(self.session_id).rewind("work", reuse=True, by=by, reason=reason)
        await self.engine.session(self.session_id).edit(fields, by=by, reason=reason)

    # called by the step that runs the tasks

    async def begun(self, agent: TaskAgent, event: TaskStarted) -> None:
        """See `Foreman`."""
        self._elsewhere = False
        self.registry.begun(agent)
        await self._note_running()
        self.bus.tell(event)
        self._watch()  # the run may have been parked, and woken by an answer

    def exited(self, agent: TaskAgent) -> None:
        """See `Foreman`."""
        self.registry.exited(agent)

    async def ended(self, event: TaskCompleted | TaskFailed) -> None:
        """See `Foreman`."""
        self.registry.ended(event.task)
        self.bus.tell(event)
        if isinstance(event, TaskFailed):
            await self._stop_for(self._safety.failed(event.error))
        else:
            self._safety.done()
        await self.called()

    async def called(self) -> None:
        """See `Foreman`. A task may be long, so the spending is checked here too."""
        await self._stop_for(await self._overspent())

    async def _reset_safety(self) -> None:
        self._safety.forget()
        await self._overspent()

    async def _overspent(self) -> str:
        info = await self.engine.session(self.session_id).info()
        return "" if info.budget_usd is None else self._safety.spent(info.spent_usd, info.budget_usd)

    async def _stop_for(self, reason: str) -> None:
        """Request a pause before the agent begins anything else."""
        if reason and all(pause.by != SAFETY for pause in await self.engine.session(self.session_id).pauses()):
            await self.engine.session(self.session_id).pause(reason=reason, by=SAFETY)


def _raised(plan: Plan, tasks: Sequence[str]) -> dict[str, int]:
    return plan.again | {id: plan.again.get(id, 0) + 1 for id in tasks}


def _named(tasks: Sequence[str]) -> str:
    """Return the first task ids for one line of the history."""
    more = f" and {len(tasks) - 20} more" if len(tasks) > 20 else ""
    return ", ".join(tasks[:20]) + more
