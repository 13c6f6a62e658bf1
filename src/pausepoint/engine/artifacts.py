"""The verbs over artifacts: report their states, adopt edits, restore recorded content, rebuild sessions from folders.

A resume examines the folder first. If edits need a decision, it raises before it writes anything. Then the edits become
one record, and the steps that must run again become one rewind.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from pausepoint.artifacts.folder import ArtifactFolder, digest_of
from pausepoint.artifacts.notes import check_free
from pausepoint.artifacts.publisher import Past, Publisher, code_of, gone, is_gone
from pausepoint.artifacts.status import (
    ArtifactState,
    Examination,
    Finding,
    artifact_named,
    examine,
    look,
)
from pausepoint.definition.artifacts import OWN, check_inside
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service
from pausepoint.engine.contents import UnheldSession, Version, content_of, no_artifacts
from pausepoint.engine.events import event_commit
from pausepoint.engine.queries import Queries
from pausepoint.engine.rerun import Rerun, is_concerned
from pausepoint.engine.time_travel import TimeTravel
from pausepoint.errors import (
    AlreadyRunning,
    FolderMisfit,
    FolderRefused,
    HoldLost,
    InputConflict,
    UndecidedEdits,
    VerbRefused,
    did_you_mean,
)
from pausepoint.log.access import StateAccess
from pausepoint.log.replay import EditBody, Line, fold
from pausepoint.log.state import Blobs
from pausepoint.log.telemetry import log_line
from pausepoint.log.trail import Adopted, Trail
from pausepoint.model.commits import NewSession
from pausepoint.model.ids import SessionId, check_session_id, check_texts, shortened
from pausepoint.model.sessions import SessionRow, Status
from pausepoint.model.views import Stale
from pausepoint.threads import in_thread

UNDRIVEN = (Status.COMPLETED, Status.WAITING, Status.SLEEPING)
"""The statuses in which a resume may have no step to run."""

Edits = Literal["accept", "discard"] | None

RERUN_REQUESTED = "a rerun was requested"


class Artifacts:
    """The verbs over the artifacts of a session."""

    def __init__(self, service: Service, queries: Queries, time_travel: TimeTravel, rerun: Rerun) -> None:
        self.service = service
        self.queries = queries
        self.time_travel = time_travel
        self.rerun = rerun

    async def artifacts(self, session_id: str) -> list[ArtifactState]:
        """Return the state of each artifact: valid, edited, invalid, missing or stale. Changes nothing."""
        self.service.check_open()
        row = await self.service.row(session_id)
        line = await self.service.timeline(row).line()
        if line.trail is None:
            return []
        return (await self.examined(self.service.workflows.get(row.workflow), row, line)).states()

    async def artifact(self, session_id: str, path: str, *, version: Version = "present") -> bytes:
        """Return the content of one artifact: of the file in the folder or, with ``version="recorded"``, of the log."""
        self.service.check_open()
        return await content_of(self.service, await self.service.row(session_id), path, version)

    async def adopt(
        self, session_id: str, paths: Collection[str] = (), *, by: str | None = None, reason: str = ""
    ) -> list[Stale]:
        """Adopt edited artifacts and return the steps that become stale, with the cost of running them again."""
        self.service.check_open()
        check_texts(by=by, reason=reason)

        async def attempt() -> list[Stale]:
            row, workflow, line = await self._artifact_session(session_id)
            found = await self.examined(workflow, row, line)
            chosen = _chosen(found, paths, ("edited",), row)
            if chosen:
                line = await self._adopt(row, workflow, line, chosen, by, reason)
                found = await self.examined(workflow, await self.service.row(session_id), line)
            return stale_of(line, found)

        return await self.service.retried(attempt)

    async def restore(
        self, session_id: str, paths: Collection[str] = (), *, by: str | None = None, reason: str = ""
    ) -> list[str]:
        """Restore the recorded content of artifacts and return their paths."""
        self.service.check_open()
        check_texts(by=by, reason=reason)

        async def attempt() -> tuple[Line, list[Finding], list[bytes]]:
            row, workflow, line = await self._artifact_session(session_id)
            found = await self.examined(workflow, row, line, even_if_gone=True)
            chosen = _chosen(found, paths, ("edited", "invalid", "missing"), row)
            contents = await self._recorded(row, workflow, line, chosen)
            await self._note_restore(row, chosen, by, reason)
            return line, chosen, contents

        return await self._write(*await self.service.retried(attempt))

    async def _note_restore(self, row: SessionRow, chosen: Sequence[Finding], by: str | None, reason: str) -> None:
        """Record who restores which files, in a session that no process drives. Nothing else of it changes."""
        if not chosen:
            return
        await self.service.driver.let_go(row.session_id)
        files = {each.file.path: each.file.sha256 for each in chosen}
        summary = f"restored by {by or 'someone'}: {', '.join(files)}" + (f" ({reason})" if reason else "")
        data = {"files": files, "by": by, "reason": reason}
        await self.service.store.revise(
            event_commit(row, self.service.clock.now(), "artifact.restored", summary, data, by or "")
        )
        self.service.driver.changed(row.session_id)

    async def _artifact_session(self, session_id: str) -> tuple[SessionRow, Workflow[Any], Line]:
        row = await self.time_travel.parked(session_id, "changed")
        line = await self.service.timeline(row).line()
        if line.trail is None:
            raise no_artifacts(row)
        return row, self.service.workflow_of(row), line

    async def rebuilt(
        self, folder: str | Path, workflow: Workflow[Any], session_id: str | None, accept_incomplete: bool,
        by: str | None, given: dict[str, Any],
    ) -> SessionId:  # fmt: skip
        """Return the id of a folder's session. If this store does not have the session, create it from the folder."""
        from pausepoint.artifacts.detection import (
            by_files,
            recorded,
        )  # programs that only run sessions do not need them
        from pausepoint.artifacts.rebuild import by_judgement, by_record

        path = Path(folder).absolute()
        found = await in_thread(recorded, path, workflow)
        if found is None:
            seen, judged = await in_thread(by_files, path, workflow, given)
            line = by_judgement(workflow, path, session_id, seen, judged, given, accept_incomplete, self.service.sizes)
        else:
            wanted = session_id or found.note.session_id
            if await self.service.store.get(check_session_id(wanted)) is not None:
                return await self._existing_session(workflow, wanted, path)
            line = await in_thread(by_record, workflow, path, wanted, found, accept_incomplete, self.service.sizes)
        new = line.session(workflow, self.service.clock.now(), by)
        carried = _carried(new, path)
        await self._check_carried(workflow, carried, new.session_id, path)
        if await self.service.store.create(new) is None:
            raise InputConflict(
                f"Session {new.session_id!r} already exists. Pass another session_id.", session_id=new.session_id
            )
        self.service.driver.on_change()
        return SessionId(new.session_id)

    async def _existing_session(self, workflow: Workflow[Any], session_id: str, folder: Path) -> SessionId:
        """Return the id of a session that this store already has. Raises if its folder is another one."""
        line = await self.service.timeline(await self.service.row(session_id)).line()
        trail = line.trail
        if trail is None or Path(trail.folder).resolve() != folder.resolve():
            where = "without a folder" if trail is None else f"with its folder at {trail.folder}"
            raise FolderRefused(
                f"Folder {folder} belongs to session {session_id!r}, which is in this store {where}. Move the folder"
                " back there, or pass another session_id= to create another session from it.",
                session_id=session_id, path=str(folder),
            )  # fmt: skip
        await self._check_carried(workflow, line, session_id, folder)
        return SessionId(session_id)

    async def _check_carried(self, workflow: Workflow[Any], line: Line, session_id: str, folder: Path) -> None:
        """Check that the session can be resumed with the present code, before anything is stored."""
        wrong = await self.queries.misfit_of(workflow, line)
        if wrong is not None:
            why = "; ".join(wrong.reasons).rstrip(".")
            raise FolderMisfit(
                f"Folder {folder} cannot be resumed with this code: {why}. The folder was not changed. Start in a new"
                " folder.",
                session_id=session_id, path=str(folder),
            )  # fmt: skip

    # examining

    async def examined(
        self, workflow: Workflow[Any] | None, row: SessionRow, line: Line, rerun: Sequence[str] = (),
        even_if_gone: bool = False,
    ) -> Examination:  # fmt: skip
        """Examine all artifacts. Raises `FolderRefused` if the whole folder is gone, unless ``even_if_gone``."""
        assert line.trail is not None
        folder = ArtifactFolder(Path(line.trail.folder))
        if not even_if_gone and await in_thread(is_gone, line.trail, folder):
            raise gone(row.session_id, folder.path)
        found = await in_thread(look, workflow, line.trail, folder)
        if workflow is not None:
            past = Past(UnheldSession(self.service, workflow, row, line), folder)
            found = [await _check_truncated(past, each) if each.maybe_truncated else each for each in found]
        return examine(line.trail, found, dict.fromkeys(rerun, RERUN_REQUESTED), row.seq + 1)

    async def settle_artifacts(
        self, row: SessionRow, edits: Edits, rerun: tuple[str, ...], by: str | None
    ) -> SessionRow:  # fmt: skip
        """Before a resume, adopt or discard edits and rewind to the stale steps. Raises if a decision is missing."""
        workflow = self.service.workflows.get(row.workflow)
        if workflow is None:
            return row
        for step in rerun:
            workflow.step(step)  # raises for an unknown one, also if there is nothing to run again
        if row.live or not workflow.publishes or row.status is Status.CANCELLED:
            return row
        if edits not in (None, "accept", "discard"):
            raise ValueError(f"edits must be 'accept' or 'discard', not {edits!r}.")
        while True:
            line = await self.service.timeline(row).line()
            if line.trail is None:
                return row
            found = await self.examined(workflow, row, line, finished(workflow, line.trail, rerun))
            self._check_decided(row, line, found, edits)
            if line.version != workflow.version and (found.taken or found.undecided or found.redo):
                raise _not_yet_migrated(row, line, workflow, found)
            try:
                return await self._settle(row, workflow, line, found, edits, rerun, by)
            except (HoldLost, AlreadyRunning):
                row = await self.service.row(row.session_id)
                if row.live:
                    return row

    async def _settle(
        self, row: SessionRow, workflow: Workflow[Any], line: Line, found: Examination, edits: Edits,
        rerun: tuple[str, ...], by: str | None,
    ) -> SessionRow:  # fmt: skip
        adopted = [*found.taken, *(found.undecided if edits == "accept" else ())]
        if edits == "discard":
            chosen = [*found.taken, *found.undecided]
            await self._write(line, chosen, await self._recorded(row, workflow, line, chosen))
        elif adopted:
            await self._adopt(row, workflow, line, adopted, by, "")
            row = await self.service.row(row.session_id)
        if edits == "discard" or adopted or rerun:
            line = await self.service.timeline(row).line()
            assert line.trail is not None
            found = await self.examined(workflow, row, line, rerun)
        assert line.trail is not None
        if edits == "discard":  # steps may still run again, for example because of a missing file
            self._check_decided(row, line, msgspec.structs.replace(found, undecided=()), None)
        for step in changed_steps(workflow, line.trail):
            if step not in found.redo:
                text = (
                    f"the code of step {step!r} has changed since it ran; its artifacts are kept."
                    f" resume(rerun=[{step!r}]) runs it again"
                )
                log_line(logging.WARNING, text, row.session_id, step)
        asked = line.trail.runs_again(rerun, RERUN_REQUESTED)
        if asked or found.redo or line.trail.pending or is_concerned(workflow, line):
            await self.rerun.redo(row, workflow, line, found, by)
            row = await self.service.row(row.session_id)
        elif row.status in UNDRIVEN:  # a crash may have interrupted a publication into the folder
            await Publisher(UnheldSession(self.service, workflow, row, line), line.trail).repair()
        return row

    def _check_decided(self, row: SessionRow, line: Line, found: Examination, edits: Edits) -> None:
        open_ones = [each for each in found.undecided if edits is None or (edits, each.state) == ("accept", "invalid")]
        lost = [each for each in found.replaced if each.accepted and not each.decided and edits is None]
        if not open_ones and not lost:
            return
        costs, at_risk = stale_of(line, found), [each for each in found.replaced if not each.decided]
        replaced = f" When they run, {'; '.join(map(str, at_risk))}." if at_risk else ""
        text = _undecided(found, open_ones, costs, replaced) if open_ones else _unsafe(found, costs, replaced)
        raise UndecidedEdits(
            f"Session {row.session_id!r} {text}",
            session_id=row.session_id, paths=[each.file.path for each in found.undecided],
            stale=[each.step for each in costs], replaced=[each.path for each in at_risk],
        )  # fmt: skip

    # acting

    async def _adopt(
        self,
        row: SessionRow,
        workflow: Workflow[Any],
        line: Line,
        chosen: Sequence[Finding],
        by: str | None,
        reason: str,
    ) -> Line:
        """Write one record that adopts edits. The bytes are kept, so that `restore` can return to them."""
        assert line.trail is not None
        folder, blobs = ArtifactFolder(Path(line.trail.folder)), list[tuple[bytes, bytes]]()
        access = StateAccess(workflow, line.state, self.service.store, self.service.sizes)
        adopted = tuple(_adopted(row.session_id, workflow, access, each, blobs) for each in chosen)
        for each in chosen:
            await in_thread(folder.keep_edit, each.data or b"")
        last_step = await self.service.timeline(row).last_step() if line.step is None else None
        body = EditBody((), by, reason, row.ended or "", last_step, adopted)
        line.state.provide(dict(blobs))
        line.edit(body)
        for change in line.trail.adopts(row.seq + 1, by, adopted):
            line.state.apply(change)
        names = ", ".join(each.file.path for each in chosen)
        summary = f"edited{f' by {by}' if by else ''}: {names}"
        questions = await self.time_travel.cancelled_questions(row)
        await self.time_travel.revise(row, line, "edit", body, summary, blobs=blobs, closed_by=by, questions=questions)
        return line

    async def _recorded(
        self, row: SessionRow, workflow: Workflow[Any], line: Line, chosen: Sequence[Finding]
    ) -> list[bytes]:  # fmt: skip
        """Return the recorded content of artifacts."""
        assert line.trail is not None
        past = Past(UnheldSession(self.service, workflow, row, line), ArtifactFolder(Path(line.trail.folder)))
        return [await past.content_of(each.file, each.work.step) for each in chosen]

    async def _write(self, line: Line, chosen: Sequence[Finding], contents: Sequence[bytes]) -> list[str]:
        """Write contents into the session's folder, and return the paths. The replaced files go to the bin."""
        assert line.trail is not None
        folder = ArtifactFolder(Path(line.trail.folder))
        await in_thread(folder.make)
        for each, data in zip(chosen, contents, strict=True):
            await in_thread(folder.stage, each.file.path, data)
            # An edit goes to the bin, even if a person put back content that the session once published itself.
            known = () if each.state == "edited" else line.trail.known.get(each.file.path, ())
            await in_thread(folder.publish, each.file.path, each.file.sha256, known)
        return [each.file.path for each in chosen]

    # planning

    async def rounds(self, row: SessionRow, line: Line, found: Examination) -> list[str]:
        """Return the steps that were visited more than once since the first visit that runs again."""
        if not found.redo or all(count == 1 for count in line.visits.values()):
            return []
        since = min(redo.since for redo in found.redo.values())
        before = (await self.service.timeline(row).before(since, reuse=False)).line.visits
        return [step for step, count in line.visits.items() if count - before.get(step, 0) > 1]

    async def check_free(self, session_id: str, folder: str | Path | None) -> None:
        """Before a session is stored, check that its folder does not belong to another session."""
        if folder is None or await self.service.store.get(session_id) is not None:
            return
        path = Path(folder).absolute()
        check_free((await in_thread(ArtifactFolder(path).notes)).get("session.json"), path, session_id)

    async def check_folder(self, session_id: str, folder: str | Path | None) -> None:
        """Check that ``folder`` is the folder of an existing session."""
        trail = (await self.service.timeline(await self.service.row(session_id)).line()).trail
        if folder is not None and trail is not None and trail.folder != str(Path(folder).absolute()):
            raise InputConflict(
                f"Session {session_id!r} already exists, and its folder is {trail.folder}, not {folder}. Pass another"
                " session_id, or leave out folder=.",
                session_id=session_id,
            )


def _carried(new: NewSession, folder: Path) -> Line:
    """Return the fold of a session that was rebuilt from a folder, before it is stored."""
    try:
        line = fold(new.records)
        line.state.provide(dict(new.blobs))
    except (LookupError, TypeError, ValueError) as error:
        raise FolderRefused(
            f"The notes in {folder}/{OWN} contradict each other ({shortened(str(error))}). Nothing was stored. Delete"
            f" {OWN} to rebuild the session from its files alone.",
            session_id=new.session_id, path=str(folder),
        ) from error  # fmt: skip
    return line


def changed_steps(workflow: Workflow[Any], trail: Trail) -> list[str]:
    """Return the finished steps whose code has changed since they ran."""
    ran = [work for work in trail.works.values() if work.step in workflow.outline and work.code and not work.skipped]
    return [work.step for work in ran if work.code != code_of(workflow.step(work.step).fn)]


def stale_of(line: Line, found: Examination) -> list[Stale]:
    """Return the finished steps that must run again, with the time and money of their last run."""
    works = line.trail.works if line.trail is not None else {}
    return [Stale(step, redo.why, works[step].took / 1e6, works[step].usd / 1e6) for step, redo in found.redo.items()]


def _undecided(found: Examination, open_ones: Sequence[Finding], costs: Sequence[Stale], replaced: str) -> str:
    """Return the message about edited files that need a decision."""
    stale = f" Accepting the edits makes these steps stale: {', '.join(map(str, costs))}." if costs else ""
    broken = [each for each in open_ones if each.state == "invalid"]
    accept = "edits='accept' to accept the edits, or "
    ways = f"Pass {'' if broken else accept}edits='discard' to restore the recorded content."
    repair = f" Or fix {broken[0].file.path}, or pass rerun=[{broken[0].work.step!r}]." if broken else ""
    problems = "; ".join(each.rstrip(".") for each in found.problems())
    return f"has changed artifacts: {problems}.{stale}{replaced} {ways}{repair}"


def _unsafe(found: Examination, costs: Sequence[Stale], replaced: str) -> str:
    """Return the message about accepted edits that steps would replace although no file was edited since."""
    missing = any(each.state == "missing" for each in found.findings)
    back = " Or write the missing files again with restore()." if missing else ""
    return (
        f"has steps to run again: {', '.join(map(str, costs))}.{replaced} Pass edits='accept' to let them. You can copy"
        f" a kept text back over its file later, and adopt it.{back}"
    )


def _not_yet_migrated(row: SessionRow, line: Line, workflow: Workflow[Any], found: Examination) -> VerbRefused:
    paths = [each.file.path for each in found.findings if each.state != "valid"]
    way = (
        f"Migrate it before you change its artifacts ({', '.join(paths)}): undo the changes with restore(), resume the"
        " session to migrate it, pause it, then make the changes again."
    )
    if not paths:
        way = (
            f"Migrate it before you run steps again ({', '.join(found.redo)}): resume it without rerun=, pause it, then"
            " resume it with rerun=."
        )
    return VerbRefused(
        f"Session {row.session_id!r} was stored by version {line.version} of {row.workflow!r}, and this code is version"
        f" {workflow.version}. {way}",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip


def finished(workflow: Workflow[Any], trail: Trail, rerun: Sequence[str]) -> tuple[str, ...]:
    for step in rerun:
        workflow.step(step)
    return tuple(step for step in rerun if step in trail.works)


def _chosen(
    found: Examination, paths: Collection[str], states: Collection[str], row: SessionRow
) -> list[Finding]:  # fmt: skip
    """Return the findings to act on. Raises if a named path is not an artifact or is in another state."""
    known = {each.file.path: each for each in found.findings}
    for path in paths:
        if path not in known:
            check_inside(path)
            raise FolderRefused(
                f"Session {row.session_id!r} has no artifact {path!r}{did_you_mean(path, known)}",
                session_id=row.session_id, path=path,
            )  # fmt: skip
        wrong = known[path]
        if wrong.state not in states:
            raise VerbRefused(
                f"Artifact {path!r} is {wrong.state} ({wrong.why}). Nothing was changed. Name only artifacts that are"
                f" {' or '.join(states)}.",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
    return [each for each in found.findings if each.state in states and (not paths or each.file.path in paths)]


def _adopted(
    session_id: str, workflow: Workflow[Any], access: StateAccess, found: Finding, blobs: Blobs
) -> Adopted:  # fmt: skip
    """Convert the edit of a file into a change of the state."""
    data, file = found.data or b"", found.file
    artifact = artifact_named(workflow, found.work.step, file.pattern)
    if artifact is None:
        raise FolderRefused(
            f"The edit of {file.path!r} cannot be accepted, because step {found.work.step!r} no longer publishes"
            f" {file.pattern!r}. Declare the artifact again, or move the file out of the folder to run its step again.",
            session_id=session_id, path=file.path,
        )  # fmt: skip
    place = artifact.place
    if artifact.many:
        entry = artifact.typed.encode(found.value, file.path, access.limits)
        key = msgspec.json.encode(file.key)
        change = access.stored_change(place.path, "merge", b"{%b:%b}" % (key, entry), blobs)
    else:
        change = access.replaced(place, found.value, blobs)
    now = msgspec.structs.replace(file, field=place.path, sha256=digest_of(data), size=len(data))
    return Adopted(now, found.work.step, change, found.same)


async def _check_truncated(past: Past, found: Finding) -> Finding:
    """Mark a file as invalid if it is a mere beginning of the recorded content: it was cut off, not edited."""
    try:
        recorded = await past.content_of(found.file, found.work.step)
    except FolderRefused:
        return found.as_unsure()
    data = found.data or b""
    if not recorded.startswith(data) or not recorded[len(data) :].strip():
        return found
    line, column = data.count(b"\n") + 1, len(data) - data.rfind(b"\n")
    why = f"line {line}, column {column}: cut off after {len(data)} of {len(recorded)} bytes"
    return msgspec.structs.replace(found, state="invalid", why=why, line=line, column=column)
