"""Runs as any process reads them from the store: their tasks, agents and questions, without the code of the tasks."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

import msgspec
from pydantic import ValidationError

from pausepoint.clock import to_datetime
from pausepoint.engine.engine import Engine
from pausepoint.engine.turns import in_turns, listed
from pausepoint.errors import UnknownSession
from pausepoint.model.questions import Question
from pausepoint.model.sessions import Event, Pause, Status
from pausepoint.model.views import Listing, SessionInfo
from pausepoint.orchestrator.bus import TaskCompleted, TaskFailed, TaskStarted
from pausepoint.orchestrator.controller import Phase
from pausepoint.orchestrator.graph import Task
from pausepoint.orchestrator.workflow import Plan

RUN = "orchestrator:run"
"""The tag of the session of every run. Runs are found by it, because each may have a workflow of its own."""

_CHANGED = frozenset(["session.edited", "session.rewound", "session.reopened"])
"""Events after which the status of a task may differ from its own events."""

TaskEvent = TaskStarted | TaskCompleted | TaskFailed
_KINDS: dict[str, type[TaskEvent]] = {kind.in_history(): kind for kind in (TaskStarted, TaskCompleted, TaskFailed)}
_STATUS: dict[type[TaskEvent], str] = {TaskStarted: "begun", TaskCompleted: "done", TaskFailed: "failed"}
_DONE = ("done", "skipped")
_ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
_OPERATION = re.compile(r'/task\[("(?:[^"\\]|\\.)*")\]')  # a task is an operation, and its calls are below it


class TaskStatus(msgspec.Struct, frozen=True):
    """The status of a task: pending, begun, done, failed or skipped. ``note`` is the error or the reason.

    ``waits_for``: the tasks that it needs and that are not done. ``question``: the id of the open question that it
    waits for. ``last``: the last event of the task. ``spent_usd`` and ``spent_tokens``: what all its attempts have
    spent with ``ctx.spend``; the sessions that it called are not included.
    """

    task: Task
    status: str
    agent: str = ""
    note: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    waits_for: tuple[str, ...] = ()
    question: str | None = None
    last: Event | None = None
    spent_usd: float = 0.0
    spent_tokens: int = 0

    @property
    def begun(self) -> bool:
        """Whether an agent has begun the task and not ended it."""
        return self.status == "begun"


class AgentStatus(msgspec.Struct, frozen=True):
    """An agent that has begun a task. ``task`` is its current task; None if it is free.

    ``since``: when it began the task, or became free. ``last``: the last event of its current or last task.
    ``spent_usd`` and ``spent_tokens``: what it has spent in its tasks.
    """

    id: str
    task: str | None
    since: datetime
    last: Event
    spent_usd: float = 0.0
    spent_tokens: int = 0


class RunReport(msgspec.Struct, frozen=True):
    """A run: the facts of its session, its tasks and agents, its open questions and pauses."""

    info: SessionInfo
    tasks: tuple[TaskStatus, ...]
    agents: tuple[AgentStatus, ...] = ()
    questions: tuple[Question, ...] = ()
    pauses: tuple[Pause, ...] = ()

    def __repr__(self) -> str:
        """Return the status and the number of tasks by status. The tasks themselves are in ``tasks``."""
        reason = f", reason={self.reason!r}" if self.reason else ""
        return f"RunReport({self.status.value!r}, {self.counts}{reason})"

    @property
    def status(self) -> Status:
        """The status of the run's session."""
        return self.info.status

    @property
    def phase(self) -> Phase | None:
        """Whether the run is running, pausing or paused; None if it has ended."""
        return phase_of(self.info)

    @property
    def reason(self) -> str:
        """Why the run is paused or has failed; empty otherwise."""
        given = "; ".join(filter(None, (pause.reason for pause in self.pauses)))
        return given or ("" if self.info.failure is None else self.info.failure.message)

    @property
    def spent_usd(self) -> float:
        """What the run has cost so far."""
        return self.info.spent_usd

    @property
    def counts(self) -> dict[str, int]:
        """The number of tasks by status."""
        return dict(Counter(each.status for each in self.tasks))

    @property
    def failed(self) -> dict[str, str]:
        """The tasks that failed, with their errors."""
        return {each.task.id: each.note for each in self.tasks if each.status == "failed"}


def phase_of(info: SessionInfo) -> Phase | None:
    """Return the phase of a run from the facts of its session; None if the run has ended."""
    if info.status in _ENDED:
        return None
    return {Status.PAUSING: Phase.PAUSING, Status.PAUSED: Phase.PAUSED}.get(info.status, Phase.RUNNING)


async def runs(
    engine: Engine, *, owner: str | None = None, status: Iterable[Status | str] | None = None, limit: int | None = None,
    after: str | None = None,
) -> Listing[SessionInfo]:  # fmt: skip
    """Return the runs of a store, newest first: the facts of their sessions. No task is read.

    The options are those of `Engine.sessions`. While a run works, ``progress`` of its session is the number of tasks
    that are done, and of all tasks. `RunReader` reads one run with its tasks.
    """
    found = None if status is None else tuple(status)
    return await engine.sessions(tag=RUN, owner=owner, status=found, limit=limit, after=after)


class RunReader:
    """Reads a run from the store, in any process. Each `read` after the first one reads only what is new.

    >>> import asyncio
    >>> from pausepoint import Engine
    >>> from pausepoint.orchestrator import Orchestrator, Task
    >>> async def work(agent: object) -> str:
    ...     return "done"
    >>> async def main() -> None:
    ...     async with Engine(":memory:") as engine:
    ...         await Orchestrator(engine, "release", work).run([Task(id="build"), Task(id="ship", needs=["build"])])
    ...         print([info.session_id for info in await runs(engine)])
    ...         report = await RunReader(engine, "release").read()
    ...         print(report, [task.status for task in report.tasks])
    >>> asyncio.run(main())
    ['release']
    RunReport('completed', {'done': 2}) ['done', 'done']
    """

    def __init__(self, engine: Engine, session_id: str) -> None:
        self.engine = engine
        self.session_id = session_id
        self.news: list[Event] = []
        self._created_at: datetime | None = None
        self._cursor = ""
        self._course: _Course | None = None
        self._one_at_a_time = asyncio.Lock()

    async def read(self) -> RunReport:
        """Return the run as it is now. ``news`` are then the events since the last call.

        Raises `UnknownSession` if the session does not exist or is not a run.
        """
        async with self._one_at_a_time:
            return await self._read()

    async def _read(self) -> RunReport:
        info = await self.engine.session(self.session_id).info()
        if RUN not in info.tags:
            raise self._no_run()
        if info.created_at != self._created_at:  # the run was removed, and another one has its id
            self._created_at, self._cursor, self._course = info.created_at, "", None
        course = await self._folded()
        questions = await self.engine.session(self.session_id).questions()
        pauses = (
            await self.engine.session(self.session_id).pauses()
            if info.pause_requested or info.pause is not None
            else ()
        )
        asking = course.asking(questions)
        tasks = await in_turns(_same, course.statuses(asking))
        return RunReport(info, tuple(tasks), tuple(course.agents(asking)), tuple(questions), tuple(pauses))

    async def _folded(self) -> _Course:
        news = await self._events(self._cursor)
        events = news
        course, self._course = self._course, None  # until it has taken all of them: the read may be cancelled
        if course is None or any(event.event_type in _CHANGED for event in news):
            course = _Course(await self._plan())
            await in_turns(course.add, course.plan.tasks)
            events = await self._events("") if self._cursor else news
        await in_turns(course.take, events)
        self._course = course
        self.news = news
        self._cursor = news[-1].cursor if news else self._cursor
        return course

    async def _events(self, after: str) -> list[Event]:
        return await listed(self.engine.session(self.session_id).events(after))

    async def _plan(self) -> Plan:
        values = (await self.engine.session(self.session_id).stored()).values
        tasks = values.get("tasks")
        try:
            if isinstance(tasks, list):
                values = values | {"tasks": await in_turns(Task.model_validate, tasks)}
            return Plan.model_validate(values)
        except ValidationError:
            raise self._no_run() from None

    def _no_run(self) -> UnknownSession:
        return UnknownSession(
            f"Session {self.session_id!r} is not a run of an orchestrator. List the runs with runs(engine).",
            session_id=self.session_id,
        )


def statuses(plan: Plan, events: Iterable[Event]) -> list[TaskStatus]:
    """Return the status of each task of a plan, from all events of the run, without questions."""
    course = _Course(plan)
    for task in plan.tasks:
        course.add(task)
    for event in events:
        course.take(event)
    return list(course.statuses({}))


class _Spent:
    """What a task or an agent has spent."""

    def __init__(self) -> None:
        self.micros = 0  # sums of dollars would be inexact
        self.tokens = 0

    def add(self, event: Event) -> None:
        """Add an amount."""
        self.micros += round(event.data["usd"] * 1e6)
        self.tokens += event.data["tokens"]

    @property
    def usd(self) -> float:
        """The dollars."""
        return self.micros / 1e6


class _Row:
    """What the events say about one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.status = "pending"
        self.agent = ""
        self.note = ""
        self.began = 0
        self.ended = 0
        self.last: Event | None = None
        self.spent = _Spent()

    def take(self, said: TaskEvent, event: Event) -> None:
        """Take in that the task has begun or ended."""
        self.status, self.agent, self.last = _STATUS[type(said)], said.agent, event
        self.note = said.error if isinstance(said, TaskFailed) else ""
        if isinstance(said, TaskStarted):
            self.began, self.ended = event.created_at, 0
        else:
            self.ended = event.created_at

    def report(self, waits_for: tuple[str, ...], question: str | None) -> TaskStatus:
        """Return the status of the task."""
        began, ended = (to_datetime(at) if at else None for at in (self.began, self.ended))
        return TaskStatus(
            self.task, self.status, self.agent, self.note, began, ended, waits_for, question, self.last,
            self.spent.usd, self.spent.tokens,
        )  # fmt: skip


class _Course:
    """What the events say about all tasks of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: dict[str, _Row] = {}
        self._at: dict[str, _Row] = {}  # the last task of each agent
        self._asked: dict[str, str] = {}  # the tasks of questions
        self._doing: dict[str, str] = {}  # the agent that began each task last, in any attempt
        self._operations: dict[str, _Row] = {}
        self._spent: dict[str, _Spent] = {}  # what each agent has spent

    def add(self, task: Task) -> None:
        """Add the next task of the plan. All of them come before the events."""
        row = self.rows[task.id] = _Row(task)
        key = f"{self.plan.again.get(task.id, 0)}:{task.id}"
        self._operations[msgspec.json.encode(key).decode()] = row

    def take(self, event: Event) -> None:
        """Take in the next event."""
        if (said := _said(event)) is not None:
            self._take(said, event)
        elif event.event_type == "spent":
            self._spend(event)
        elif (found := _OPERATION.match(str(event.data.get("id", "")))) and found[1] in self._operations:
            row = self._operations[found[1]]
            row.last = event
            if event.event_type == "question.asked":
                self._asked[event.data["question_id"]] = row.task.id
        elif (named := self.rows.get(str(event.data.get("task", "")))) is not None:
            named.last = event  # of the worker itself

    def _take(self, said: TaskEvent, event: Event) -> None:
        if isinstance(said, TaskStarted):
            self._doing[said.task] = said.agent
        row = self.rows.get(said.task)  # the plan may have been changed
        if row is not None and said.attempt == self.plan.again.get(said.task, 0) + 1:
            row.take(said, event)
            self._at[said.agent] = row

    def _spend(self, event: Event) -> None:
        """Count what a task has spent, in this attempt or an earlier one, for the task and for its agent."""
        found = _OPERATION.match(str(event.data.get("operation", "")))
        task = "" if found is None else str(msgspec.json.decode(found[1])).partition(":")[2]
        row = self.rows.get(task)
        if row is not None:
            row.spent.add(event)
            self._spent.setdefault(self._doing.get(task, row.agent), _Spent()).add(event)

    def asking(self, questions: Iterable[Question]) -> dict[str, str]:
        """Return the tasks that wait for one of these questions, each with the id of the question."""
        found = ((self._asked.get(question.id), question.id) for question in questions)
        return {task: question for task, question in found if task is not None}

    def statuses(self, asking: dict[str, str]) -> Iterable[TaskStatus]:
        """Yield the status of each task, in the order of the plan."""
        skipped = self.plan.skipped
        over = {id for id, row in self.rows.items() if row.status in _DONE or id in skipped}
        for id, row in self.rows.items():
            waits_for = () if id in over else tuple(need for need in row.task.needs if need not in over)
            if id in skipped:
                yield TaskStatus(
                    row.task, "skipped", note=skipped[id], last=row.last, spent_usd=row.spent.usd,
                    spent_tokens=row.spent.tokens,
                )  # fmt: skip
            else:
                yield row.report(waits_for, asking.get(id))

    def agents(self, asking: dict[str, str]) -> Iterable[AgentStatus]:
        """Yield the agents. One whose task waits for an answer is free to do others, and may return to it later."""
        at_work = [row for row in self.rows.values() if row.status == "begun" and row.task.id not in asking]
        current = {row.agent: row for row in sorted(at_work, key=lambda row: row.began)}
        for id in sorted(self._at, key=_by_number):
            row = current.get(id)
            last = (row or self._at[id]).last
            assert last is not None
            at = last.created_at if row is None else row.began
            cost = self._spent.get(id, _Spent())
            yield AgentStatus(id, None if row is None else row.task.id, to_datetime(at), last, cost.usd, cost.tokens)


def _same(status: TaskStatus) -> TaskStatus:
    return status


def _said(event: Event) -> TaskEvent | None:
    """Return what an event says about a task; None for all others, and for a stranger's event of such a name."""
    kind = _KINDS.get(event.event_type)
    if kind is None:
        return None
    with suppress(msgspec.ValidationError):
        return msgspec.convert(event.data, kind)
    return None


def _by_number(agent: str) -> tuple[int, str]:
    """Sort agent-2 before agent-10."""
    number = agent.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0), agent
