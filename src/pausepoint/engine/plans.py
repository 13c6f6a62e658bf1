"""Plans: what a resume would do, and why: now, or after an edit, a rewind or a fork.

A plan is made from records alone; nothing runs, and nothing is written. For each step, a plan says whether it is done,
runs next, will run, may run or is left out. Steps after the next route may run: the route decides only when the step
before it has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.artifacts.status import ArtifactState, Examination, ReplacedEdit, rewound_edits
from pausepoint.clock import to_datetime
from pausepoint.definition.fields import overlap
from pausepoint.definition.steps import as_names
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.artifacts import RERUN_REQUESTED, Artifacts, changed_steps, finished, stale_of
from pausepoint.engine.base import Service
from pausepoint.engine.contents import check_past
from pausepoint.engine.obstacles import TRIED
from pausepoint.engine.operations import PlannedOperation, arrivals, item_ids, planned_operations, undone_operations
from pausepoint.engine.queries import Queries
from pausepoint.engine.rerun import is_concerned
from pausepoint.engine.results import AGAIN, replaced
from pausepoint.engine.time_travel import LEFT_OPEN, Target, TimeTravel, line_before, merged_changes, needed, restarted
from pausepoint.log.events import retries_of
from pausepoint.log.replay import EditBody, Line, fold, to_payload
from pausepoint.log.state import Blobs
from pausepoint.log.timeline import Timeline
from pausepoint.log.trail import Trail, Work
from pausepoint.model.ids import SessionId
from pausepoint.model.notebook import table
from pausepoint.model.records import seal
from pausepoint.model.sessions import Pause, SessionRow, Status
from pausepoint.model.views import Stale
from pausepoint.threads import in_thread

Verdict = Literal["done", "next", "will run", "may run", "left out"]

_NEW = -1
"""The version of a field that will be written. No step has read it."""


class PlannedStep(msgspec.Struct, frozen=True):
    """One step of a plan: its verdict and the reason. ``visits`` is the number of its finished visits."""

    step: str
    verdict: Verdict
    why: str
    visits: int = 0


class Plan(msgspec.Struct, frozen=True):
    """What a resume of a session would do. ``obstacles`` are the reasons why it would not run at all.

    ``artifacts`` are the states of its published files. ``stale`` are the finished steps that would run again.
    ``undecided`` are the edited files that need a decision first. ``changed`` are the steps that are reused although
    their code has changed. ``replaces`` are the edits of people that steps replace when they run again.
    ``operations`` are those of the step that was interrupted: which results are kept, what waits, what will run. With
    the verdict ``runs again``, they are those of undone visits, which had finished, and what they cost.
    """

    session_id: SessionId
    status: Status
    steps: tuple[PlannedStep, ...]
    obstacles: tuple[str, ...] = ()
    artifacts: tuple[ArtifactState, ...] = ()
    stale: tuple[Stale, ...] = ()
    undecided: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    replaces: tuple[ReplacedEdit, ...] = ()
    operations: tuple[PlannedOperation, ...] = ()

    @property
    def needs_decision(self) -> bool:
        """Whether a resume needs ``edits=``: for edited files, or because steps would replace accepted edits."""
        return bool(self.undecided) or any(each.accepted and not each.decided for each in self.replaces)

    def __iter__(self) -> Iterator[PlannedStep]:
        return iter(self.steps)

    def __getitem__(self, step: str) -> PlannedStep:
        return {each.step: each for each in self.steps}[step]

    def __str__(self) -> str:
        width = max((len(each.step) for each in self.steps), default=0)
        lines = [f"{self.session_id} is {self.status}"]
        lines += [f"  ! {obstacle}" for obstacle in self.obstacles]
        for each in self.steps:
            lines.append(f"  {each.verdict:8}  {each.step:{width}}  {each.why}")
            lines += self._operation_lines(each.step)
        lines += [f"  ! {each}" for each in self.replaces]
        return "\n".join(lines)

    def _operation_lines(self, step: str) -> list[str]:
        rows = [each for each in self.operations if each.step == step]
        width = max((len(each.operation) for each in rows), default=0)
        return [f"    {each.verdict:8}  {each.operation:{width}}  {each.why}" for each in rows]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data, for `json.dumps`."""
        from pausepoint.engine.documents import PlanDocument  # it names the verdicts of this module

        plain: dict[str, Any] = msgspec.to_builtins(PlanDocument.of(self, left_behind=msgspec.UNSET))
        return plain

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [("", "paused", "", obstacle) for obstacle in self.obstacles]
        for each in self.steps:
            rows.append((each.step, each.verdict, each.visits or "", each.why))
            rows += [
                (f"· {some.operation}", some.verdict, some.count, some.why)
                for some in self.operations
                if some.step == each.step
            ]
        return table(["step", "what", "visits", "why"], rows, f"Plan of session {self.session_id}, {self.status}")


def make_plan(
    workflow: Workflow[Any], row: SessionRow, line: Line, pauses: list[Pause], obstacles: tuple[str, ...], now: int = 0,
    maps: Mapping[str, tuple[str, ...]] = MappingProxyType({}), arrived: Collection[str] = (),
) -> Plan:  # fmt: skip
    """Return the plan of a session, from its row, its records, its open pauses and what a resume would find.

    ``maps`` are the items of the maps of the open visit; see `item_ids`. ``arrived`` is what it waited for and has not
    read yet; see `arrivals`.
    """
    ahead = {} if row.ended in ("completed", "cancelled") else _ahead(workflow, row, line, pauses, now)
    steps = tuple(_planned(line, step.name, ahead) for step in workflow.steps)
    operations = planned_operations(row, line, maps, arrived)
    return Plan(SessionId(row.session_id), row.status, steps, obstacles, operations=operations)


def with_artifacts(
    plan: Plan, trail: Trail, found: Examination, stale: list[Stale], changed: Sequence[str],
    writes: Mapping[str, tuple[str, ...]], restarted: str | None, rounds: Collection[str] = (),
) -> Plan:  # fmt: skip
    """Return the plan, extended by what follows from the artifacts in the session's folder.

    ``changed`` are the steps whose code has changed, ``writes`` the fields that each step writes. ``restarted`` is the
    open step if it starts again. ``rounds`` are the steps visited more than once since the first step that runs again.
    """
    outlook = _Outlook(trail, found, restarted, rounds)
    steps: list[PlannedStep] = []
    for each in plan.steps:
        each = outlook.of(each, writes[each.step])
        if each.verdict == "done" and each.step in changed:
            why = f"{each.why}; its code has changed; resume with rerun= to run it again"
            each = msgspec.structs.replace(each, why=why)
        steps.append(each)
    return msgspec.structs.replace(
        plan, steps=tuple(steps), obstacles=(*plan.obstacles, *found.problems()), artifacts=tuple(found.states()),
        stale=tuple(stale), undecided=tuple(each.file.path for each in found.undecided),
        changed=tuple(each.step for each in steps if each.verdict == "done" and each.step in changed),
        operations=() if restarted is not None or outlook.first is not None else plan.operations,
    )  # fmt: skip


class _Outlook:
    """Decides about the steps one after the other: whether one is reused depends on what the steps before it write.

    ``first`` is the first step that runs again. ``written`` are the fields that may have changed by then.
    """

    def __init__(self, trail: Trail, found: Examination, restarted: str | None, rounds: Collection[str]) -> None:
        self.first = min(found.redo, key=lambda step: found.redo[step].since, default=None)
        self.trail, self.redo, self.restarted, self.rounds = trail, {**trail.redo, **found.redo}, restarted, rounds
        self.behind, self.versions, self.written = False, dict(trail.versions), set[str]()

    def of(self, each: PlannedStep, writes: Sequence[str]) -> PlannedStep:
        """Decide about the next step, and note the fields it writes."""
        self.behind = self.behind or each.step == self.first
        verdict, why = self._verdict(each)
        if verdict in ("next", "will run"):
            self.versions |= dict.fromkeys(writes, _NEW)
        if verdict in ("next", "will run", "may run"):
            self.written |= {*writes}
        return msgspec.structs.replace(each, verdict=verdict, why=why)

    def _verdict(self, each: PlannedStep) -> tuple[Verdict, str]:
        reused, work = self.trail.reused.get(each.step), self.trail.works.get(each.step)
        if each.step in self.redo:
            comes_next = each.verdict == "next" if self.first is None else each.step == self.first
            return "next" if comes_next else "will run", self.redo[each.step].why
        comes_again = each.verdict == "may run" or (reused is None and self.behind and each.verdict != "done")
        if work is not None and (each.step in self.rounds or (comes_again and self.first is not None)):
            return "may run", "it is in a loop that runs again"
        if self.behind and work is not None and (field := self._first_written(work)):
            return "may run", f"runs if its input {field} is written"
        if (reused is not None and reused.holds(self.versions)) or (self.behind and work is not None):
            self.versions |= reused.published.writes if reused is not None else {}
            self.written -= {*work.writes} if work is not None else set()
            return "done", "reused: its inputs are unchanged"
        if self.first is not None and each.verdict == "next":
            return ("will run", each.why) if self.behind else ("may run", f"runs again after {self.first}")
        return each.verdict, "starts again: its input was edited" if each.step == self.restarted else each.why

    def _first_written(self, work: Work) -> str:
        """Return the first field that a finished visit reads and that an earlier step may write now."""
        found = (field for field in sorted(self.written) if any(overlap(field, place) for place in work.places))
        return next(found, "")


def _planned(line: Line, step: str, ahead: dict[str, tuple[Verdict, str]]) -> PlannedStep:
    visits = line.visits.get(step, 0)
    if step in ahead:
        verdict, why = ahead[step]
        return PlannedStep(step, verdict, why, visits)
    if visits:
        return PlannedStep(
            step, "done", "its checkpoint is kept" if visits == 1 else f"{visits} visits are kept", visits
        )
    return PlannedStep(step, "left out", "the session did not reach it")


def _ahead(
    workflow: Workflow[Any], row: SessionRow, line: Line, pauses: list[Pause], now: int
) -> dict[str, tuple[Verdict, str]]:
    """Return the steps still to come, as far as known."""
    found: dict[str, tuple[Verdict, str]] = {}
    here = line.step
    if here is None or here not in workflow.outline:
        return found
    if not line.held_by_guard:
        found[here] = ("next", _why_next(row, line, pauses, now))
    _follow(workflow, here, found)
    for name in found:
        verdict, why = found[name]
        if workflow.step(name).when is not None and verdict != "may run":
            found[name] = (verdict, f"{why}; its `when` may skip it")
    return found


def _follow(workflow: Workflow[Any], here: str, found: dict[str, tuple[Verdict, str]]) -> None:
    """Add the steps up to the next route, then all steps that the route may lead to."""
    while here not in workflow.routes:
        following = workflow.following(here)
        if following is None or following in found:
            return
        guards = workflow.guards.get(here, ())
        names = " and ".join(guard.name for guard in guards)
        after = f"follows {here}" + (f", if {names} {'allow' if len(guards) > 1 else 'allows'} it" if guards else "")
        found[following] = ("will run", after)
        here = following
    open_ends = [here]
    while open_ends:
        here = open_ends.pop()
        for target in workflow.targets(here):
            if target is not None and target not in found:
                route = workflow.routes.get(here)
                found[target] = (
                    "may run",
                    f"route {route.check.name!r} after {here} decides" if route else f"follows {here}",
                )
                open_ends.append(target)


def _why_next(row: SessionRow, line: Line, pauses: list[Pause], now: int) -> str:
    if row.failure is not None and row.ended == "failed":
        return f"failed: {row.failure.type}: {row.failure.message}"
    retries = [str(each) for each in retries_of(line, now if row.live else 0)]
    if row.status in (Status.RUNNING, Status.PAUSING):
        return "; ".join(["running", *retries])
    tried = [pause for pause in pauses if pause.kind in TRIED]
    reasons = [f"{pause.kind}: {pause.reason.partition(' What to do: ')[0].rstrip('.')}" for pause in tried]
    if line.left_behind and line.opened == line.left_behind[-1][1] + 2:  # the visit began with a rewind's key frame
        reasons.append("rewound")
    if line.operations:
        count = sum(1 for operation in line.operations.values() if not operation.total)
        kept = f"; {count} {'operation is' if count == 1 else 'operations are'} remembered" if count else ""
        reasons.append(f"interrupted{kept}")
    if line.attempts:
        reasons.append(f"{line.attempts} {'attempt' if line.attempts == 1 else 'attempts'} failed")
    reasons += retries
    kinds = [f"an {kind}" if kind == "answer" else f"a {kind}" for kind in (row.waiting or "").split(",") if kind]
    if kinds and row.due:
        reasons.append("what it waited for has arrived")
    elif kinds:
        reasons.append(f"waits for {' or '.join(kinds)}")
    if row.wakes_at and not row.due:
        reasons.append(f"sleeps until {to_datetime(row.wakes_at).isoformat(timespec='seconds')}")
    return "; ".join(reasons) or ("never ran" if not line.visits.get(line.step or "") else "runs again")


class Undone(NamedTuple):
    """The ranges of a session's log that the planned ``line`` leaves behind: what had finished there runs again."""

    timeline: Timeline
    line: Line
    ranges: Sequence[tuple[int, int]]


async def _undone_before(timeline: Timeline, line: Line) -> Undone:
    """Return what a session has left behind by now. A visit that a rewind began runs its operations again."""
    return Undone(timeline, line, line.left_behind if await timeline.is_after_rewind(line) else ())


async def _with_undone(plan: Plan, workflow: Workflow[Any], undone: Undone) -> Plan:
    """Return the plan with the operations of undone visits whose steps run again."""
    rows = await undone_operations(*undone, workflow.renamed) if undone.ranges else ()
    ahead = {each.step for each in plan if each.verdict in ("next", "will run", "may run")}
    return replace(plan, operations=(*plan.operations, *(each for each in rows if each.step in ahead)))


class Plans:
    """The verbs that plan a resume."""

    def __init__(self, service: Service, queries: Queries, time_travel: TimeTravel, artifacts: Artifacts) -> None:
        self.service = service
        self.queries = queries
        self.time_travel = time_travel
        self.artifacts = artifacts

    async def plan(self, session_id: str, *, rerun: str | Sequence[str] = (), wake: bool = False) -> Plan:
        """Return what a resume would do with each step, and why. Runs and changes nothing."""
        self.service.check_open()
        row = await self.service.row(session_id)
        row = replace(row, wakes_at=0) if wake else row
        workflow = self.service.workflow_of(row)
        line = fold(await self.service.store.records(row.key, row.key_frame))
        timeline, pauses = self.service.timeline(row), await self.service.store.pauses(row.key)
        return await self._planned(workflow, row, line, pauses, as_names(rerun), await _undone_before(timeline, line))

    async def plan_edit(
        self, session_id: str, changes: Mapping[str, Any] | None = None, /, **named: Any
    ) -> Plan:  # fmt: skip
        """Return what a resume would do after such an edit. Validates the changes and stores nothing."""
        self.service.check_open()
        given = needed("plan_edit", merged_changes(changes, named))
        row = await self.time_travel.parked(session_id, "edited")
        line, body, _, facts = await self.time_travel.edited(row, given)
        record = seal(row.digest, row.seq + 1, row.seq, "edit", "", 0, row.updated_at, to_payload(body))
        line.fold(record, body, applied=True)
        closed = facts.get("close_pauses", ())
        pauses = [pause for pause in await self.service.store.pauses(row.key) if pause.id not in closed]
        pauses += facts.get("open_pauses", ())
        undone = await _undone_before(self.service.timeline(row), line)
        return await self._planned(
            self.service.workflow_of(row), restarted(row, line, len(pauses)), line, pauses, (), undone
        )

    async def plan_rewind(
        self, session_id: str, /, to: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        to_operation: int | str | None = None, result: Any = AGAIN, reuse: bool = False,
        rerun: str | Sequence[str] = (), **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what a resume would do after such a rewind. Validates the changes and stores nothing."""
        self.service.check_open()
        row = await self.service.row(session_id)
        workflow, given = self.service.workflow_of(row), merged_changes(changes, named)
        place = Target.of_rewind(to, to_operation, reuse, result)
        line, _, _, operation = await line_before(self.service, row, place)
        await check_past(self.service, row, line)
        if operation is not None and result is not AGAIN:
            line.operations[operation.id] = replaced(
                workflow, row, line, operation, result, self.service.sizes, [], None
            )
        if given:
            blobs: Blobs = []
            body = EditBody(await self.time_travel.edits_there(row, line, given, blobs))
            line.fold(seal(row.digest, row.seq + 3, row.seq + 2, "edit", "", 0, row.updated_at, to_payload(body)), body)
            line.state.provide(dict(blobs))
        pauses = [pause for pause in await self.service.store.pauses(row.key) if pause.kind in LEFT_OPEN]
        undone = Undone(self.service.timeline(row), line, line.left_behind)
        return await self._planned(workflow, restarted(row, line, len(pauses)), line, pauses, as_names(rerun), undone)

    async def plan_fork(
        self, source: str, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        at_operation: int | str | None = None, reuse: bool = False, **named: Any,
    ) -> Plan:  # fmt: skip
        """Return what such a fork would run. Validates the changes and stores nothing."""
        self.service.check_open()
        row = await self.service.row(source)
        workflow, place = self.service.workflow_of(row), Target.of_fork(at_step, at_operation, reuse)
        new = await self.time_travel.forked(
            workflow, row, SessionId(row.session_id), place, merged_changes(changes, named), None, "."
        )
        line, timeline = fold(new.records), self.service.timeline(row)
        past = await place.find(timeline)
        undone = Undone(timeline, line, (*past.line.left_behind, (past.base + 1, row.seq)))
        row = replace(row, seq=1, live=False, pause_requested=False)
        return await self._planned(workflow, restarted(row, line), line, [], (), undone)

    async def _of_steps(
        self, workflow: Workflow[Any], row: SessionRow, line: Line, pauses: list[Pause]
    ) -> Plan:  # fmt: skip
        found = await self.queries.examiner(workflow, row, line).found(pauses)
        maps, arrived = await item_ids(self.service.store, line), await arrivals(self.service.store, row, line)
        return make_plan(workflow, row, line, pauses, found.reasons, self.service.clock.now(), maps, arrived)

    async def _planned(
        self, workflow: Workflow[Any], row: SessionRow, line: Line, pauses: list[Pause], rerun: Sequence[str],
        undone: Undone,
    ) -> Plan:  # fmt: skip
        plan = await self._of_steps(workflow, row, line, pauses)
        if line.trail is None:
            return await _with_undone(plan, workflow, undone)
        # While the session runs, its folder keeps changing; only the log says which steps are reused.
        again = finished(workflow, line.trail, rerun)
        line.trail.runs_again(rerun, RERUN_REQUESTED)
        found = Examination((), {}) if row.live else await self.artifacts.examined(workflow, row, line, again)
        folder = ArtifactFolder(Path(line.trail.folder))
        rewound = [] if row.live else await in_thread(rewound_edits, workflow, line.trail, folder)
        writes = {step.name: tuple(step.places) for step in workflow.steps}
        edited = [
            each.file.field for each in (*found.taken, *found.undecided) if each.state == "edited" and not each.same
        ]
        open_step = line.step if is_concerned(workflow, line, edited) else None
        changed, rounds = changed_steps(workflow, line.trail), await self.artifacts.rounds(row, line, found)
        plan = with_artifacts(plan, line.trail, found, stale_of(line, found), changed, writes, open_step, rounds)
        ahead = [each for each in rewound if plan[each.step].verdict in ("next", "will run")]
        plan = replace(plan, replaces=(*found.replaced, *ahead))
        begins = min((redo.since for redo in found.redo.values()), default=None)
        if row.seq > 1 and (begins is not None or open_step is not None):
            past = await undone.timeline.before(f"{line.step}#{line.visit}" if begins is None else begins, False)
            ranges = (*past.line.left_behind, (past.base + 1, undone.timeline.row.seq))
            undone = Undone(undone.timeline, past.line, ranges)
        return await _with_undone(plan, workflow, undone)
