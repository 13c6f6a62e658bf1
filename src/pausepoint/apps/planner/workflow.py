"""The planner's pipeline: the agents with their read and write scopes, and a coordinator that moves the stage.

The scopes below define which fields an agent may read and write. `intake` takes in the user's files; agents only read
them.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pausepoint import Context, Retry, Scope, Workflow, guard, route
from pausepoint.apps.planner import estimation, exams, ingestion, materials, output
from pausepoint.apps.planner import plan as planning
from pausepoint.apps.planner import review as reviewing
from pausepoint.apps.planner.models import (
    EstimationPayload,
    EstimationState,
    Evidence,
    FileEntry,
    IngestionPayload,
    IngestionState,
    PlannerState,
    PlanningPayload,
    PlanningState,
    Review,
    Stage,
    Upload,
    UserInputs,
)
from pausepoint.apps.planner.shown import VERDICTS, Shown
from pausepoint.apps.planner.stages import days_missing, files_missing, inputs_missing, moved
from pausepoint.apps.planner.titles import title_of
from pausepoint.apps.words import many
from pausepoint.definition import At
from pausepoint.model import SessionId

EVENTS = ("invoke", "handoff", "warning", "review", "revision", "complete")

coordinator = Scope("CoordinatorAgent", reads=["*"], writes=["status", "artifacts"])
intake = Scope("Intake", reads=["user_inputs", "uploads"], writes=["file_registry"])
ingestion_agent = Scope("IngestionAgent", reads=["user_inputs", "file_registry"], writes=["ingestion_state"])
estimation_agent = Scope(
    "EstimationAgent", reads=["ingestion_state.course_topic_evidence"], writes=["estimation_state"]
)
planning_agent = Scope(
    "PlanningReviewerAgent", reads=["user_inputs", "estimation_state"], writes=["planning_state"]
)  # fmt: skip


# collecting


@coordinator.step(writes="status")
async def open_session(status: Stage) -> Stage:
    """Start to collect the inputs."""
    return moved(status, "collecting_inputs")


@intake.step(writes="file_registry")
async def collect(
    uploads: list[Upload], file_registry: dict[str, FileEntry], ctx: Context
) -> dict[str, FileEntry]:  # fmt: skip
    """Take in the files named at the start. Files added since then are already in the registry."""
    registry = dict(file_registry)
    for upload in uploads:
        content, kind = await asyncio.to_thread(materials.content_of, upload.path)
        file = await ctx.files.add(
            content, upload.filename, kind, course_ids=upload.course_ids, is_shared=upload.is_shared
        )  # fmt: skip
        entry = FileEntry.model_validate(file.entry())
        registry[file.file_id] = await asyncio.to_thread(joined, registry.get(file.file_id), entry, upload, content)
    return registry


def joined(before: FileEntry | None, entry: FileEntry, upload: Upload, content: Path | bytes) -> FileEntry:
    """Return a registry entry that also covers the courses of this upload. A file keeps its first name and book.

    A chapter of a folder has no title here: rows of the plan name it as its topic.
    """
    named = before
    if named is None:
        title = "" if upload.book else title_of(content, entry.content_type)
        named = entry.model_copy(update={"filename": upload.filename, "book": upload.book, "title": title})
    known = [*(before.course_ids if before else []), *upload.course_ids]
    shared = upload.is_shared or (before is not None and before.is_shared)
    return named.model_copy(update={
        "course_ids": list(dict.fromkeys(known)), "is_shared": shared, "title": upload.title or named.title,
        "role": upload.role or named.role, "chapter": upload.chapter or named.chapter,
    })  # fmt: skip


@guard(after=collect)
def every_course_has_a_date(user_inputs: UserInputs, file_registry: dict[str, FileEntry]) -> str | None:
    return inputs_missing(user_inputs, file_registry)


# ingesting


@coordinator.step(writes="status")
async def begin_ingesting(status: Stage, file_registry: dict[str, FileEntry], ctx: Context) -> Stage:
    """Pass the files to IngestionAgent."""
    ctx.emit("invoke", f"IngestionAgent: {many(len(file_registry), 'file')}")
    return moved(status, "ingesting")


@ingestion_agent.step(writes="ingestion_state", retry=Retry(attempts=3, on=(ConnectionError, TimeoutError)))
async def ingest(
    user_inputs: UserInputs, file_registry: dict[str, FileEntry], session_id: SessionId, ctx: Context
) -> IngestionState:  # fmt: skip
    """Read every file and find the topics of every course."""
    payload = IngestionPayload(session_id=session_id, user_inputs=user_inputs, file_registry=file_registry)
    return await ingestion.ingest(payload, ctx)


@guard(after=ingest)
def every_file_is_read(file_registry: dict[str, FileEntry], ingestion_state: IngestionState) -> str | None:
    return files_missing(file_registry, ingestion_state)


# estimating


@coordinator.step(writes="status")
async def begin_estimating(
    status: Stage, ingestion_state: IngestionState, file_registry: dict[str, FileEntry], ctx: Context
) -> Stage:  # fmt: skip
    """Pass the topics to EstimationAgent, with warnings about partial files."""
    for file_id, found in ingestion_state.files.items():
        if found.warning:
            ctx.emit("warning", f"{file_registry[file_id].filename} is partial: {found.warning}", file_id=file_id)
    ctx.emit("invoke", f"EstimationAgent: {many(len(ingestion_state.course_topic_evidence), 'topic')}")
    return moved(status, "estimating")


@estimation_agent.step(writes="estimation_state")
async def estimate(
    course_topic_evidence: Annotated[list[Evidence], At("ingestion_state.course_topic_evidence")],
    session_id: SessionId, ctx: Context,
) -> EstimationState:  # fmt: skip
    """Estimate every topic."""
    found = estimation.estimate(EstimationPayload(session_id=session_id, course_topic_evidence=course_topic_evidence))
    minutes = sum(each.estimated_minutes for each in found.topic_estimates)
    ctx.emit("handoff", f"{many(len(found.topic_estimates), 'topic')}, {many(minutes, 'minute')},"
                        f" {many(len(found.uncertainty_flags), 'uncertainty flag')}")  # fmt: skip
    return found


@guard(after=estimate)
def every_exam_is_known(user_inputs: UserInputs, estimation_state: EstimationState) -> str | None:
    return exams.unknown(user_inputs, estimation_state.topic_estimates)


# planning and reviewing


@coordinator.step(writes="status")
async def begin_planning(status: Stage, planning_state: PlanningState, ctx: Context) -> Stage:
    """Ask PlanningReviewerAgent for a plan."""
    ctx.emit("invoke", f"PlanningReviewerAgent: plan {planning_state.plan_version + 1}")
    return moved(status, "planning")


def _payload(
    session_id: str, inputs: UserInputs, estimates: EstimationState, planning: PlanningState, ctx: Context
) -> PlanningPayload:  # fmt: skip
    return PlanningPayload(
        session_id=session_id, user_inputs=inputs, estimation_state=estimates, planning_state=planning,
        start=first_day(inputs, ctx),
    )  # fmt: skip


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def first_day(inputs: UserInputs, ctx: Context) -> date:
    """Return the requested first day, or the day the session was created in the student's time zone."""
    return inputs.start_date or ctx.started_at.astimezone(ZoneInfo(inputs.timezone)).date()


@planning_agent.step(writes="planning_state")
async def plan(
    user_inputs: UserInputs, estimation_state: EstimationState, planning_state: PlanningState, session_id: SessionId,
    ctx: Context,
) -> PlanningState:  # fmt: skip
    """Make the next version of the plan."""
    payload = _payload(session_id, user_inputs, estimation_state, planning_state, ctx)
    payload.now = await ctx.do(_now)  # recorded: a plan that is made again after a kill has the same time
    found = planning.plan(payload)
    if planning_state.plan_version:
        ctx.emit("revision", f"plan {found.plan_version} replaces plan {planning_state.plan_version}")
    ctx.emit("handoff", f"plan {found.plan_version}: {many(len(found.plan_rows), 'row')} up to"
                        f" {found.last_midterm_date}")  # fmt: skip
    return found


@guard(after=plan)
def every_day_is_planned(planning_state: PlanningState) -> str | None:
    return days_missing(planning_state)


@coordinator.step(writes="status")
async def begin_reviewing(status: Stage, planning_state: PlanningState, ctx: Context) -> Stage:
    """Ask PlanningReviewerAgent for a review."""
    ctx.emit("invoke", f"PlanningReviewerAgent: review of plan {planning_state.plan_version}")
    return moved(status, "reviewing")


@planning_agent.step(writes="planning_state.review")
async def review(
    user_inputs: UserInputs, estimation_state: EstimationState, planning_state: PlanningState, session_id: SessionId,
    ctx: Context,
) -> Review:  # fmt: skip
    """Review the plan."""
    found = reviewing.review(_payload(session_id, user_inputs, estimation_state, planning_state, ctx))
    reasons = f": {'; '.join(found.revision_reasons[:3])}" if found.revision_reasons else ""
    more = f" and {len(found.revision_reasons) - 3} more" if len(found.revision_reasons) > 3 else ""
    ctx.emit("review", f"plan {planning_state.plan_version}: {VERDICTS[found.result_type]}{reasons}{more}")
    return found


@route(after=review)
def after_review(
    review: Annotated[Review | None, At("planning_state.review")],
) -> Literal["begin_planning", "finish"]:
    return "finish" if review is not None and review.result_type != "needs_revision" else "begin_planning"


@coordinator.step(writes=["status", "artifacts"])
async def finish(
    status: Stage, user_inputs: UserInputs, planning_state: PlanningState, ingestion_state: IngestionState,
    estimation_state: EstimationState, file_registry: dict[str, FileEntry], ctx: Context,
) -> dict[str, Any]:  # fmt: skip
    """Write the plan to its output files."""
    state = PlannerState(
        user_inputs=user_inputs, planning_state=planning_state, ingestion_state=ingestion_state,
        estimation_state=estimation_state, file_registry=file_registry,
    )  # fmt: skip
    outputs = ctx.files.outputs
    written = output.write(output.place_of(outputs), Shown.of(state), ctx.session_id, ctx.started_at, outputs)
    ctx.emit("complete", f"plan {planning_state.plan_version} is written")
    return {"status": moved(status, "completed"), "artifacts": written}


planner = Workflow(
    "planner",
    state=PlannerState,
    steps=[
        open_session, collect, begin_ingesting, ingest, begin_estimating, estimate,
        begin_planning, plan, begin_reviewing, review, finish,
    ],
    routes=[after_review],
    guards=[every_course_has_a_date, every_file_is_read, every_exam_is_known, every_day_is_planned],
    events=EVENTS,
    pause="step",
)  # fmt: skip
