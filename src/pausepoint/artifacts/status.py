"""How the artifacts in a session's folder stand against what its log says, and what follows from that.

Pure but for reading the folder. Nothing is decided here: an *examination* says which files are as recorded, which were
changed by another hand, which steps have to run again, and what somebody has to decide first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from pausepoint.artifacts.folder import ArtifactFolder, digest_of, mark
from pausepoint.definition.artifacts import BoundArtifact, Unfit
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import FolderRefused
from pausepoint.log.state import Change, Inline
from pausepoint.log.trail import Adopted, PublishedFile, Redo, Trail, Work, stale

Condition = Literal["valid", "edited", "invalid", "missing", "stale"]

_NOTHING = Change("", "set", Inline(msgspec.Raw(b"null")))


class ArtifactState(msgspec.Struct, frozen=True):
    """How one artifact stands. ``by`` is whose edit was taken in last; None: its step made it.

    ``line`` and ``column`` say where an invalid one cannot be read. ``sha256`` and ``size`` are what is recorded.
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


class Finding(msgspec.Struct, frozen=True):
    """One file as it was found. ``value`` is what an edited one says now, ``data`` its bytes.

    ``whole``: its form tells that its end is there. ``unsure``: nobody can tell whether it was cut off. ``same``: only
    its form is another, as after an editor has indented it anew; nobody who has read it is concerned.
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

    @property
    def cut(self) -> bool:
        """Whether it may be what is left of the recorded content: shorter, and not known to be whole."""
        shorter = self.data is not None and len(self.data) < self.file.size
        return self.state == "edited" and shorter and not self.whole and not self.same

    def doubted(self) -> Finding:
        """The same, where what was recorded is not at hand to compare it with."""
        size = len(self.data or b"")
        why = f"it has {size} bytes instead of {self.file.size}: it was shortened by another hand, or cut off"
        return msgspec.structs.replace(self, why=why, unsure=True)


class Examination(msgspec.Struct, frozen=True):
    """What a resume would meet: ``redo`` are the finished steps that run again if all edits are taken in.

    ``taken`` are edits that nobody has built on, ``undecided`` the others, and what can no longer be read.
    """

    findings: tuple[Finding, ...]
    redo: dict[str, Redo]
    taken: tuple[Finding, ...] = ()
    undecided: tuple[Finding, ...] = ()

    def states(self) -> list[ArtifactState]:
        """Each file for people; a valid one whose step has to run again is stale."""
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
        """What somebody has to decide about, a line each."""
        return [f"{each.file.path} is {each.state}: {each.why}" for each in self.undecided]


def look(workflow: Workflow[Any], trail: Trail, shelf: ArtifactFolder) -> list[Finding]:
    """Every file that the log knows of, as it is now. Reads the folder; blocks."""
    staged = shelf.staged()
    return [_look(workflow, trail, shelf, staged, file, work) for file, work in trail.files().values()]


def _look(
    workflow: Workflow[Any], trail: Trail, shelf: ArtifactFolder, staged: set[str], file: PublishedFile, work: Work
) -> Finding:  # fmt: skip
    waits = mark(file.path, file.sha256) in staged
    try:
        data = shelf.read(file.path)
    except FolderRefused as wrong:
        return Finding(file, work, "invalid", str(wrong))
    if data is None:
        if waits:
            return Finding(file, work, "valid", "recorded; a resume publishes it")
        return Finding(file, work, "missing", "it was left and is not there any more")
    digest = digest_of(data)
    if digest == file.sha256:
        return Finding(file, work, "valid", "as recorded")
    if digest in trail.known.get(file.path, ()):
        return Finding(file, work, "valid", "an older version of its own; a resume publishes the recorded one")
    artifact = artifact_named(workflow, work.step, file.pattern)
    if artifact is None:
        return Finding(file, work, "edited", "it is not as recorded, and no step declares it any more", data)
    return _judged(artifact, shelf, file, work, data)


def _judged(artifact: BoundArtifact, shelf: ArtifactFolder, file: PublishedFile, work: Work, data: bytes) -> Finding:
    """Content that is not what was recorded: an edit, or something that cannot be read."""
    try:
        if _says_the_same(artifact, shelf, file, data):
            why = "it was written otherwise by another hand, and says the same"
            return Finding(file, work, "edited", why, data, artifact.decoded(data), same=True)
        if len(data) < min(artifact.spec.min_bytes, file.size):
            raise Unfit(f"it has {len(data)} bytes, and less than {artifact.spec.min_bytes} are taken for a remnant")
        value = artifact.decoded(data)
        if problem := "" if artifact.many else artifact.misses(value):
            raise Unfit(problem)
    except Unfit as wrong:
        return Finding(file, work, "invalid", str(wrong), data, None, wrong.line, wrong.column)
    whole = artifact.codec == "json" and data.strip()[:1] in (b"[", b"{", b'"')
    return Finding(file, work, "edited", "it was changed by another hand", data, value, whole=whole)


def _says_the_same(artifact: BoundArtifact, shelf: ArtifactFolder, file: PublishedFile, data: bytes) -> bool:
    """Whether content has the recorded value, only in another form. Raises `Unfit`."""
    form = artifact.encoded(artifact.decoded(data))
    if digest_of(form) == file.sha256:
        return True
    before = shelf.kept(file.sha256)  # what is recorded may be somebody's own form as well
    try:
        return before is not None and artifact.encoded(artifact.decoded(before)) == form
    except Unfit:
        return False  # the type is another by now


def artifact_named(workflow: Workflow[Any], step: str, pattern: str) -> BoundArtifact | None:
    """The artifact of a step by its path as declared, if there still is one."""
    step = workflow.renamed.get(step, step)
    published = workflow.step(step).publishes if step in workflow.outline else ()
    return next((artifact for artifact in published if artifact.path == pattern), None)


def examine(trail: Trail, found: Iterable[Finding], rerun: Mapping[str, str], seq: int) -> Examination:
    """What follows from what was found. ``seq`` is the number that a record of the edits would have."""
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
    invalid = [each for each in findings if each.state == "invalid" and each.work.step not in seeds]
    decided = {each.file.path for each in taken}
    undecided = (*(each for each in edited if each.file.path not in decided), *invalid)
    trial: Trail = msgspec.json.decode(msgspec.json.encode(trail), type=Trail)
    trial.adopts(seq, None, [Adopted(each.file, each.work.step, _NOTHING, each.same) for each in edited])
    redo = {
        step: msgspec.structs.replace(each, spared=_spared(findings, step, each.why), reads=trial.works[step].reads)
        for step, each in stale(trial, seeds).items()
    }
    return Examination(findings, redo, taken, undecided)


def _makers(trail: Trail, missing: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The steps that missing files can be had from: those that left them last; ``missing`` has their names by path.

    If the session was made anew of its folder, nobody knows what those found there: all that wrote such a file.
    """
    yield from ((step, path) for path, step in missing.items())
    for work in trail.works.values() if trail.rebuilt_from else ():
        yield from ((work.step, file.path) for file in work.files if file.path in missing)


def _spared(findings: Iterable[Finding], step: str, why: str) -> tuple[PublishedFile, ...]:
    """What a step need not make again: the files that are as they were, if only others of it are missing."""
    if not why.startswith("artifact missing"):
        return ()
    return tuple(each.file for each in findings if each.work.step == step and each.state == "valid")
