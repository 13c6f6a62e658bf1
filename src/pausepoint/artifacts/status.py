"""Compares the files in a session's folder with its log.

Nothing is changed here. An *examination* says which files are as recorded, which were edited, which steps must run
again, and what a person has to decide first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from pausepoint.artifacts.folder import ArtifactFolder, digest_of, kept_as, mark
from pausepoint.artifacts.notes import LastPublished, last_published, put_back, unpublished
from pausepoint.definition.artifacts import OWN, BoundArtifact, Unfit
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import FolderRefused, FolderUnavailable
from pausepoint.log.state import Change, Inline
from pausepoint.log.trail import Adopted, PublishedFile, Redo, Trail, Work, stale

Condition = Literal["valid", "edited", "invalid", "missing", "stale"]

_NOTHING = Change("", "set", Inline(msgspec.Raw(b"null")))


class ArtifactState(msgspec.Struct, frozen=True):
    """The state of one artifact. ``by`` is the author of the last accepted edit; None if its step wrote it.

    ``line`` and ``column`` are the position of the error in an invalid file. ``sha256`` and ``size`` are the recorded
    values.
    """

    path: str
    step: str
    field: str
    state: Condition
    why: str
    sha256: str
    size: int
    line: int = 0
    column: int = 0
    by: str | None = None


class ReplacedEdit(msgspec.Struct, frozen=True):
    """A person's edit of an artifact that ``step`` replaces when it runs again, and where its text is ``kept``.

    ``accepted``: the edit is in the log, and ``by`` is its author. ``decided``: the step was named with ``rerun=``, or
    the session was rewound to it, so that nobody has to decide any more.
    """

    path: str
    step: str
    kept: str
    by: str | None = None
    accepted: bool = True
    decided: bool = False

    def __str__(self) -> str:
        who = f"edited by {self.by}" if self.by else "edited by hand"
        return f"{self.step} replaces {self.path}, {who} (kept as {self.kept})"


class Finding(msgspec.Struct, frozen=True):
    """One file as it was found. ``value`` is the value of an edited file, ``data`` its bytes.

    ``whole``: the format proves that the file is complete. ``unsure``: the file may be truncated. ``same``: only the
    formatting changed, so no reader is stale. ``accepted``: the recorded content is the edit of a person.
    """

    file: PublishedFile
    work: Work
    state: Condition
    why: str
    data: bytes | None = None
    value: Any = None
    line: int = 0
    column: int = 0
    whole: bool = False
    unsure: bool = False
    same: bool = False
    accepted: bool = False

    @property
    def maybe_truncated(self) -> bool:
        """Whether the file may be truncated: shorter than recorded, and not known to be complete."""
        shorter = self.data is not None and len(self.data) < self.file.size
        return self.state == "edited" and shorter and not self.whole and not self.same

    def as_unsure(self) -> Finding:
        """Return the finding as unsure, because the recorded content is not available for comparison."""
        size = len(self.data or b"")
        why = f"it has {size} bytes instead of {self.file.size}: it was shortened or truncated"
        return msgspec.structs.replace(self, why=why, unsure=True)


class Examination(msgspec.Struct, frozen=True):
    """The result of comparing a folder with its log.

    ``redo`` are the finished steps that run again if all edits are accepted.
    ``taken`` are edits that no finished step has read. ``undecided`` are all other edits, and invalid files.
    ``replaced`` are edits that these steps replace.
    """

    findings: tuple[Finding, ...]
    redo: dict[str, Redo]
    taken: tuple[Finding, ...] = ()
    undecided: tuple[Finding, ...] = ()
    replaced: tuple[ReplacedEdit, ...] = ()

    def states(self) -> list[ArtifactState]:
        """Return the state of each file. A valid file is stale if its step must run again."""
        return [self._state(each) for each in self.findings]

    def _state(self, found: Finding) -> ArtifactState:
        condition, why, redo = found.state, found.why, self.redo.get(found.work.step)
        if condition == "valid" and redo is not None:
            condition, why = "stale", f"{found.work.step} runs again: {redo.why}"
        file = found.file
        return ArtifactState(
            file.path, found.work.step, file.field, condition, why, file.sha256, file.size, found.line, found.column,
            found.work.by if found.file.at in found.work.edit_seqs else None,
        )  # fmt: skip

    def problems(self) -> list[str]:
        """Return one line for each file that a person has to decide about."""
        return [f"{each.file.path} is {each.state}: {each.why}" for each in self.undecided]


def look(workflow: Workflow[Any] | None, trail: Trail, folder: ArtifactFolder) -> list[Finding]:
    """Examine every file that the log knows. Blocks while it reads the folder.

    Without the ``workflow``, changed files are only compared with the record, not read.
    """
    staged, last = folder.staged(), last_published(folder.notes())
    found = [_look(workflow, trail, folder, staged, last, file, work) for file, work in trail.files().values()]
    return [
        msgspec.structs.replace(each, accepted=True) if _is_accepted(workflow, trail, folder, each) else each
        for each in found
    ]


def _is_accepted(workflow: Workflow[Any] | None, trail: Trail, folder: ArtifactFolder, found: Finding) -> bool:
    """Return whether the recorded content is the edit of a person, and not only the formatting of a step's value."""
    file, work = found.file, found.work
    kept = folder.kept_edit(file.sha256) if file.at in work.edit_seqs else None
    artifact = artifact_named(workflow, work.step, file.pattern)
    if kept is None or artifact is None:
        return kept is not None
    try:
        form = digest_of(artifact.encoded(artifact.decoded(kept)))
    except Unfit:
        return True  # the type of the field has changed
    return form == file.sha256 or form not in trail.known.get(file.path, ())


def rewound_edits(workflow: Workflow[Any], trail: Trail, folder: ArtifactFolder) -> list[ReplacedEdit]:
    """Return the accepted edits that are still in the folder although the session was rewound to before their step."""
    reused = {file.path for each in trail.reused.values() for file in each.published.files}
    found: list[ReplacedEdit] = []
    for path in trail.known.keys() - trail.files().keys() - reused:
        step = next((each.name for each in workflow.steps for one in each.publishes if one.could_be(path)), None)
        data = _content(folder, path) if step is not None else None
        if step is None or data is None or folder.kept_edit(digest_of(data)) is None:
            continue
        found.append(ReplacedEdit(path, step, kept_as(digest_of(data)), decided=True))
    return sorted(found, key=lambda each: each.path)


def _content(folder: ArtifactFolder, path: str) -> bytes | None:
    try:
        return folder.read(path)
    except FolderUnavailable:
        raise
    except FolderRefused:
        return None  # a link or a folder that a person put there


def _look(
    workflow: Workflow[Any] | None, trail: Trail, folder: ArtifactFolder, staged: set[str], last: LastPublished,
    file: PublishedFile, work: Work,
) -> Finding:  # fmt: skip
    waits = mark(file.path, file.sha256) in staged or unpublished(file, work, last)
    try:
        data = folder.read(file.path)
    except FolderUnavailable:
        raise  # trouble of the disk says nothing about the file
    except FolderRefused as wrong:
        return Finding(file, work, "invalid", str(wrong))
    if data is None:
        if waits:
            return Finding(file, work, "valid", "recorded; a resume publishes it")
        return Finding(file, work, "missing", "it was published, but no longer exists")
    digest = digest_of(data)
    if digest == file.sha256:
        return Finding(file, work, "valid", "as recorded")
    ours = digest in trail.known.get(file.path, ())
    if ours and not put_back(trail, folder, file, work, digest, last):
        return Finding(file, work, "valid", "an older version; a resume publishes the recorded one")
    artifact = artifact_named(workflow, work.step, file.pattern)
    if artifact is None:
        also = f"; it has {_size(data)}" if workflow is None else ", and no step declares it any more"
        return Finding(file, work, "edited", f"it differs from the record{also}", data)
    found = _judged(artifact, folder, file, work, data)
    if ours and found.state == "edited" and not found.same:
        return msgspec.structs.replace(found, why="it was put back to an older version", whole=True)
    return found


def _judged(artifact: BoundArtifact, folder: ArtifactFolder, file: PublishedFile, work: Work, data: bytes) -> Finding:
    """Judge content that differs from the record: an edit, or an invalid file."""
    try:
        if _same_value(artifact, folder, file, data):
            why = "the file was reformatted; its content is unchanged"
            return Finding(file, work, "edited", why, data, artifact.decoded(data), same=True)
        if len(data) < min(artifact.spec.min_bytes, file.size):
            raise Unfit(
                f"it has {_size(data)}; a file below {artifact.spec.min_bytes} bytes counts as incomplete; to adopt it,"
                " lower min_bytes= of its Artifact"
            )
        value = artifact.decoded(data)
        if problem := "" if artifact.many else artifact.misses(value):
            raise Unfit(problem)
    except Unfit as wrong:
        return Finding(file, work, "invalid", str(wrong), data, None, wrong.line, wrong.column)
    whole = artifact.codec == "json" and data.strip()[:1] in (b"[", b"{", b'"')
    return Finding(file, work, "edited", "its content differs from the record", data, value, whole=whole)


def _size(data: bytes) -> str:
    return f"{len(data)} byte{'' if len(data) == 1 else 's'}"


def _same_value(artifact: BoundArtifact, folder: ArtifactFolder, file: PublishedFile, data: bytes) -> bool:
    """Return whether content has the recorded value in another format. Raises `Unfit`."""
    form = artifact.encoded(artifact.decoded(data))
    if digest_of(form) == file.sha256:
        return True
    before = folder.kept_edit(file.sha256)  # the recorded content may be an edit with its own formatting
    try:
        return before is not None and artifact.encoded(artifact.decoded(before)) == form
    except Unfit:
        return False  # the type of the field has changed


def artifact_named(workflow: Workflow[Any] | None, step: str, pattern: str) -> BoundArtifact | None:
    """Return the artifact of a step by its declared path; None if it is no longer declared."""
    if workflow is None:
        return None
    step = workflow.renamed.get(step, step)
    published = workflow.step(step).publishes if step in workflow.outline else ()
    return next((artifact for artifact in published if artifact.path == pattern), None)


def examine(trail: Trail, found: Iterable[Finding], rerun: Mapping[str, str], seq: int) -> Examination:
    """Return the consequences of the findings. ``seq`` is the number that a record of the edits would get."""
    findings = tuple(found)
    seeds = dict(rerun)
    for step, path in _makers(trail, {each.file.path: each.work.step for each in findings if each.state == "missing"}):
        seeds.setdefault(step, f"artifact missing: {path}")
    redone = stale(trail, seeds)
    edited = [each for each in findings if each.state == "edited" and each.work.step not in rerun]
    taken = tuple(
        each
        for each in edited
        if each.same
        or (not each.unsure and each.work.step not in redone and not trail.readers(each.work, each.file.field))
    )
    invalid = [each for each in findings if each.state == "invalid" and each.work.step not in rerun]
    decided = {each.file.path for each in taken}
    undecided = (*(each for each in edited if each.file.path not in decided), *invalid)
    trial: Trail = msgspec.json.decode(msgspec.json.encode(trail), type=Trail)
    trial.adopts(seq, None, [Adopted(each.file, each.work.step, _NOTHING, each.same) for each in edited])
    redo = {
        step: msgspec.structs.replace(each, spared=_spared(findings, step, each.why), reads=trial.works[step].reads)
        for step, each in stale(trial, seeds).items()
    }
    return Examination(findings, redo, taken, undecided, tuple(_replaced(findings, redo, rerun)))


def _replaced(
    findings: Iterable[Finding], redo: Mapping[str, Redo], rerun: Mapping[str, str]
) -> Iterator[ReplacedEdit]:
    """Yield the edits that steps replace when they run again. A step that spares a file is handed its content."""
    for each in findings:
        step, path = each.work.step, each.file.path
        if step not in redo or any(file.path == path for file in redo[step].spared):
            continue
        decided = step in rerun
        if each.state == "edited" and not each.same:
            kept = f"{OWN}/bin" if decided else kept_as(digest_of(each.data or b""))
            yield ReplacedEdit(path, step, kept, None, accepted=False, decided=decided)
        elif each.accepted:
            yield ReplacedEdit(path, step, kept_as(each.file.sha256), each.work.by, decided=decided)


def _makers(trail: Trail, missing: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the steps that must run again to make missing files. ``missing`` maps each path to its last step.

    In a session that was rebuilt from its folder, all steps that wrote such a file must run, because its earlier
    content is unknown.
    """
    yield from ((step, path) for path, step in missing.items())
    for work in trail.works.values() if trail.rebuilt_from else ():
        yield from ((work.step, file.path) for file in work.files if file.path in missing)


def _spared(findings: Iterable[Finding], step: str, why: str) -> tuple[PublishedFile, ...]:
    """Return the valid files of a step that runs again only because other files of it are missing."""
    if not why.startswith("artifact missing"):
        return ()
    return tuple(each.file for each in findings if each.work.step == step and each.state == "valid")
