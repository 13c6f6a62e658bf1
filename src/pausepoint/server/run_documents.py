"""The JSON documents about runs of orchestrators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.engine.documents import DamagedDocument, PauseDocument, damaged
from pausepoint.engine.turns import in_turns
from pausepoint.model.documents import Document, Moment
from pausepoint.server.documents import AgentNoteDocument, HeadDocument, HttpQuestion

if TYPE_CHECKING:
    from pausepoint.gate import AgentNote
    from pausepoint.model.sessions import Event
    from pausepoint.model.views import Listing, SessionInfo
    from pausepoint.orchestrator import AgentStatus, RunReport, TaskStatus


class RunHead(HeadDocument):
    """A run without its tasks.

    ``phase`` is null if the run has ended. While the run works, ``progress`` is the number of its tasks that are done,
    and of all.
    """

    phase: Literal["running", "pausing", "paused"] | None

    @classmethod
    def of(cls, record: SessionInfo, **fields: Any) -> Self:
        from pausepoint.orchestrator import phase_of

        phase = phase_of(record)
        return super().of(record, phase=None if phase is None else phase.value, **fields)


class RunsDocument(Document):
    """Runs, newest first. Send ``next`` as ``after`` to get more."""

    runs: Sequence[RunHead]
    next: str | None
    damaged: Sequence[DamagedDocument]


class RunEvent(Document):
    """The last event of a task."""

    event_type: str
    summary: str
    created_at: Moment

    @classmethod
    def of(cls, record: Event, **fields: Any) -> Self:
        return super().of(record, created_at=to_datetime(record.created_at), **fields)


class RunAgent(Document):
    """An agent of a run.

    ``task`` is the task it works on, or null if it is free. ``since`` is when it began the task or became free.
    ``spent_usd`` and ``spent_tokens`` are what it has spent in its tasks.
    """

    id: str
    task: str | None
    since: Moment
    last: RunEvent
    spent_usd: float
    spent_tokens: int


class RunTask(Document):
    """A task of a run.

    ``waits_for`` are the tasks it needs that are not done: a pending task without any is ready. ``question`` is the
    open question it waits for. ``note`` is the error of a failed task, or why it was skipped. ``spent_usd`` and
    ``spent_tokens`` are what all its attempts have spent.
    """

    id: str
    status: Literal["pending", "begun", "done", "failed", "skipped"]
    needs: Sequence[str]
    waits_for: Sequence[str]
    priority: int
    agent: str | None
    note: str | None
    question: str | None
    began_at: Moment | None
    ended_at: Moment | None
    last: RunEvent | None
    spent_usd: float
    spent_tokens: int


class RunQuestion(HttpQuestion):
    """A question of a run. ``task`` asks it; null if a child session asks."""

    task: str | None


class RunEngine(Document):
    """An open engine that drives a run, or would after a resume."""

    pid: int
    host: str


class GatedAgent(HeadDocument):
    """The session of an agent at the gate."""

    agent: AgentNoteDocument


class GatedAgents(Document):
    """The agents at the gate that have not ended; those that changed last come first, at most 50."""

    agents: Sequence[GatedAgent]


class RunDocument(RunHead):
    """A run with its tasks and agents.

    ``driven_by`` are the open engines that drive it, or would after a resume; ``note`` says so in a sentence.
    """

    reason: str | None
    counts: dict[str, int]
    pauses: Sequence[PauseDocument]
    agents: Sequence[RunAgent]
    tasks: Sequence[RunTask]
    questions: Sequence[RunQuestion]
    driven_by: Sequence[RunEngine]
    note: str


def runs(infos: Listing[SessionInfo]) -> RunsDocument:
    """Return a list of runs. ``next`` is the cursor of the next page."""
    return RunsDocument([RunHead.of(info) for info in infos], infos.next, damaged(infos.damaged))


def agents(notes: Sequence[tuple[SessionInfo, AgentNote]]) -> GatedAgents:
    """Return the sessions of agents at the gate."""
    return GatedAgents([GatedAgent.of(info, agent=AgentNoteDocument.of(note)) for info, note in notes])


async def run(report: RunReport, driven_by: Sequence[RunEngine], note: str) -> RunDocument:
    """Return a run with its tasks, agents, questions and pauses. A run may have many tasks, so these are encoded."""
    tasks = {status.question: status.task.id for status in report.tasks if status.question is not None}
    return RunDocument.of(
        report.info, reason=report.reason or None, counts=report.counts,
        pauses=[PauseDocument.of(pause) for pause in report.pauses], agents=[_agent(agent) for agent in report.agents],
        tasks=await in_turns(_task, report.tasks),
        questions=[RunQuestion.of(question, task=tasks.get(question.id)) for question in report.questions],
        driven_by=driven_by, note=note,
    )  # fmt: skip


def _agent(status: AgentStatus) -> RunAgent:
    return RunAgent.of(status, last=RunEvent.of(status.last))


def _task(status: TaskStatus) -> msgspec.Raw:
    """Return a task without its data, which may be large and is in the state of the run."""
    task = RunTask.of(
        status, id=status.task.id, needs=status.task.needs, priority=status.task.priority, agent=status.agent or None,
        note=status.note or None, last=None if status.last is None else RunEvent.of(status.last),
    )  # fmt: skip
    return msgspec.Raw(msgspec.json.encode(task))
