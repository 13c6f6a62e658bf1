"""The history of artifacts in a log: which visit published which files, made from which versions of fields.

The *version* of a field is the number of the record that wrote it. A checkpoint is *stale* if it read a version that
has been replaced since, or that a stale checkpoint wrote. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pausepoint.definition.fields import overlap
from pausepoint.log.state import Change


class PublishedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One published file: its path in the session's folder, the field that it shows, and the hash of its content.

    ``pattern`` is the path in the declaration of the artifact. ``key`` is the dict key, if the file shows one entry of
    a dict. ``at`` is the record that has the content.
    """

    path: str
    pattern: str
    field: str
    sha256: str
    size: int
    key: str = ""
    at: int = 0


class Published(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a checkpoint about artifacts: the versions that the visit read, its files, and its cost.

    ``code`` is a fingerprint of the step's source code. ``places`` are all paths that the step reads, including those
    that were never written. If an earlier checkpoint is reused, ``of`` is its number, and ``writes`` are the versions
    that its fields keep. ``unstaged``: the disk refused some of its files, so they have to be made from the log.
    """

    reads: dict[str, int]
    files: tuple[PublishedFile, ...] = ()
    code: str = ""
    usd: int = 0
    of: int = 0
    writes: dict[str, int] = {}
    took: int = 0
    places: tuple[str, ...] = ()
    unstaged: bool = False


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last finished visit of a step. ``seq`` is its checkpoint; ``edit_seqs`` are records that edited its files.

    ``made`` is the checkpoint of the visit that ran, if this one was reused. ``grown`` are the fields that the visit
    added to, so they still contain earlier values. ``past`` is for loops: versions that earlier visits read and that
    are still present, each with the checkpoint of the first visit that read it. ``unstaged`` is that of `Published`.
    """

    step: str
    visit: int
    seq: int
    at: int
    reads: dict[str, int]
    writes: dict[str, int] = {}
    files: tuple[PublishedFile, ...] = ()
    code: str = ""
    took: int = 0
    usd: int = 0
    version: int = 1
    skipped: str = ""
    edit_seqs: tuple[int, ...] = ()
    by: str | None = None
    made: int = 0
    grown: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    past: tuple[tuple[str, int, int], ...] = ()
    unstaged: bool = False

    def read(self) -> dict[tuple[str, int], int]:
        """Return the versions that this visit and earlier ones read, each with the first checkpoint that read it."""
        return dict.fromkeys(self.reads.items(), self.seq) | {(key, at): first for key, at, first in self.past}


class Adopted(msgspec.Struct, frozen=True):
    """An edited file and the change that it makes to the state. ``same``: only the format changed, not the value."""

    file: PublishedFile
    step: str
    change: Change
    same: bool = False


class Reused(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint that is reused although an earlier step runs again. Its changes are written again; nothing runs."""

    changes: tuple[Change, ...]
    published: Published
    skipped: str = ""
    edit_seqs: tuple[int, ...] = ()
    by: str | None = None

    def holds(self, versions: Mapping[str, int]) -> bool:
        """Return whether the versions that the step read are still the present ones."""
        return self.published.reads == read_of(versions, self.published.places)


class Redo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that runs again, and why.

    ``spared`` are its files that stay valid as long as the step reads the versions in ``reads``. ``since`` is the
    checkpoint of the first visit to redo.
    """

    why: str
    spared: tuple[PublishedFile, ...] = ()
    reads: dict[str, int] = {}
    since: int = 0


class Trail(msgspec.Struct, omit_defaults=True):
    """The folded history of artifacts, for a session that has a folder.

    ``versions`` maps each field to the record that wrote it. ``replaced`` are versions that an edit replaced after a
    visit had read them. ``known`` has all hashes that this session ever recorded for a path. ``pending`` are steps with
    an edited file that is not in the state yet, because later steps wrote to the same field. ``edited`` maps the paths
    that were edited in the state to the record of the last edit. ``rebuilt_from`` is the session that the folder
    belonged to before a rebuild.
    """

    folder: str
    works: dict[str, Work] = {}
    versions: dict[str, int] = {}
    replaced: tuple[tuple[str, int], ...] = ()
    known: dict[str, tuple[str, ...]] = {}
    reused: dict[str, Reused] = {}
    redo: dict[str, Redo] = {}
    pending: tuple[str, ...] = ()
    edited: dict[str, int] = {}
    rebuilt_from: str = ""

    def files(self) -> dict[str, tuple[PublishedFile, Work]]:
        """Return the newest file of each path, and the work that published it."""
        found: dict[str, tuple[PublishedFile, Work]] = {}
        for work in sorted(self.works.values(), key=lambda each: each.seq):
            found.update((file.path, (file, work)) for file in work.files)
        return found

    def finished(self, work: Work) -> None:
        """Fold a checkpoint."""
        reused = self.reused.pop(work.step, None)
        self.redo.pop(work.step, None)
        if reused is not None and work.made:
            work = msgspec.structs.replace(work, skipped=reused.skipped, edit_seqs=reused.edit_seqs, by=reused.by)
        before = self.works.get(work.step)
        self.works[work.step] = work
        self.versions.update(work.writes)
        if before is not None:
            self.works[work.step] = msgspec.structs.replace(work, past=self._past(before))
        for file in work.files:
            self.knows(file)
        read = {pair for each in self.works.values() for pair in each.read()}
        self.replaced = tuple(pair for pair in self.replaced if pair in read)

    def _past(self, before: Work) -> tuple[tuple[str, int, int], ...]:
        """Return the versions that a step read in earlier rounds of a loop and that an edit can still replace."""
        present = {*self.versions.values(), *(at for work in self.works.values() for at in work.writes.values())}
        return tuple((key, at, first) for (key, at), first in before.read().items() if at in present)

    def carried(self, renamed: Mapping[str, str], moved: Mapping[str, str]) -> None:
        """Rename steps (old to new) and fields (new to old)."""
        names = _Names(renamed, {old: new for new, old in moved.items()})
        self.works = {names.step(step): names.work(work) for step, work in self.works.items()}
        self.versions, self.edited = names.versions(self.versions), names.versions(self.edited)
        self.replaced = tuple((names.path(key), version) for key, version in self.replaced)
        self.reused = {names.step(step): names.reused(reused) for step, reused in self.reused.items()}
        self.redo = {names.step(step): redo for step, redo in self.redo.items()}
        self.pending = tuple(names.step(step) for step in self.pending)

    def runs_again(self, steps: Iterable[str], why: str) -> bool:
        """Run these steps instead of reusing their checkpoints. Return whether there is such a step."""
        named = [step for step in steps if step in self.reused]
        for step in named:
            del self.reused[step]
            self.redo[step] = Redo(why)
        return bool(named)

    def knows(self, file: PublishedFile) -> None:
        """Remember the content of a file as published by this session."""
        before = self.known.get(file.path, ())
        if file.sha256 not in before:
            self.known[file.path] = (*before, file.sha256)

    def adopts(self, seq: int, by: str | None, adopted: Iterable[Adopted]) -> list[Change]:
        """Fold edits of files. Return the changes that apply to the present state."""
        changes, changed = list[Change](), dict[str, dict[str, PublishedFile]]()
        for each in adopted:
            work, file = self.works[each.step], msgspec.structs.replace(each.file, at=seq)
            writes = work.writes
            if not each.same:
                changes += self._replaces(work, each, seq)
                writes = {**writes, file.field: seq}
            edit_seqs = work.edit_seqs if seq in work.edit_seqs else (*work.edit_seqs, seq)
            self.works[each.step] = msgspec.structs.replace(work, writes=writes, edit_seqs=edit_seqs, by=by)
            changed.setdefault(each.step, {})[file.path] = file
            self.knows(file)
        for step, new in changed.items():
            files = tuple(new.get(file.path, file) for file in self.works[step].files)
            self.works[step] = msgspec.structs.replace(self.works[step], files=files)
        return changes

    def _replaces(self, work: Work, edit: Adopted, seq: int) -> list[Change]:
        """Replace what a step wrote with the edited value, for its readers and, if still present, in the state."""
        current = self._is_current(work, edit.file.field)
        if current:
            self.versions[edit.file.field] = seq
        elif edit.step not in self.pending:
            self.pending = (*self.pending, edit.step)
        self.replaced = (*self.replaced, *self.readers(work, edit.file.field))
        return [edit.change] if current else []

    def readers(self, work: Work, field: str) -> list[tuple[str, int]]:
        """Return the versions of a field with this work's result in them that later visits have read."""
        later = [other for other in self.works.values() if other.seq > work.seq]
        pairs = {pair for other in later for pair in other.read() if overlap(pair[0], field)}
        versions = self._versions_of(work, field)
        return sorted(pair for pair in pairs if pair[1] in versions and pair not in self.replaced)

    def _is_current(self, work: Work, field: str) -> bool:
        """Return whether no later visit has written to the field."""
        now = {at for key, at in self.versions.items() if overlap(key, field)}
        return now.isdisjoint(_written(self._later(work), field))

    def _later(self, work: Work) -> list[Work]:
        return sorted((other for other in self.works.values() if other.seq > work.seq), key=lambda each: each.seq)

    def _versions_of(self, work: Work, field: str) -> set[int]:
        """Return the versions of a field that contain what a visit wrote, also those that later visits added to.

        An edit of the state is one of them, because it replaced what the visit had written.
        """
        later, found, until = self._later(work), set[int](), float("inf")
        for other in later:
            added = [at for key, at in other.writes.items() if overlap(key, field) and key in other.grown]
            if not added and any(field == key or field.startswith(f"{key}.") for key in other.writes):
                until = other.seq  # overwritten by a later visit
                break
            found.update(added)
        read = {at for other in later for key, at in other.reads.items() if overlap(key, field)}
        now = {at for key, at in self.versions.items() if overlap(key, field)}
        own = {*work.edit_seqs, *work.writes.values()}
        theirs = _written(later, field)
        return found | {at for at in read | now | own if at not in theirs and (at < until or at in own)}

    def open_edits(self) -> dict[str, int]:
        """Return the paths that were edited in the state and not written by a step since, each with its version.

        The version may be that of an edited file. Files do not show these edits, or not all of them.
        """
        adopted = {seq for work in self.works.values() for seq in work.edit_seqs}
        now = {path: max(read_of(self.versions, (path,)).values(), default=0) for path in self.edited}
        return {path: at for path, at in now.items() if at == self.edited[path] or at in adopted}

    def read_by(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the present versions of the fields at these paths."""
        return read_of(self.versions, paths)


class _Names(msgspec.Struct, frozen=True):
    """The present names of steps and fields, by their former names."""

    steps: Mapping[str, str]
    fields: Mapping[str, str]

    def step(self, name: str) -> str:
        return self.steps.get(name, name)

    def path(self, path: str) -> str:
        field, dot, rest = path.partition(".")
        return self.fields.get(field, field) + dot + rest

    def paths(self, paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.path(path) for path in paths)

    def versions(self, versions: Mapping[str, int]) -> dict[str, int]:
        return {self.path(key): version for key, version in versions.items()}

    def files(self, files: Iterable[PublishedFile]) -> tuple[PublishedFile, ...]:
        return tuple(msgspec.structs.replace(file, field=self.path(file.field)) for file in files)

    def work(self, work: Work) -> Work:
        return msgspec.structs.replace(
            work, step=self.step(work.step), reads=self.versions(work.reads), writes=self.versions(work.writes),
            files=self.files(work.files), grown=self.paths(work.grown), places=self.paths(work.places),
            past=tuple((self.path(key), at, first) for key, at, first in work.past),
        )  # fmt: skip

    def reused(self, reused: Reused) -> Reused:
        old = reused.published
        published = msgspec.structs.replace(
            old, reads=self.versions(old.reads), writes=self.versions(old.writes), files=self.files(old.files),
            places=self.paths(old.places),
        )  # fmt: skip
        changes = tuple(msgspec.structs.replace(change, path=self.path(change.path)) for change in reused.changes)
        return msgspec.structs.replace(reused, changes=changes, published=published)


def read_of(versions: Mapping[str, int], places: Iterable[str]) -> dict[str, int]:
    """Return the versions that overlap with these paths."""
    wanted = tuple(places)
    return {key: version for key, version in versions.items() if any(overlap(key, path) for path in wanted)}


def _written(works: Iterable[Work], field: str) -> set[int]:
    """Return the versions of a field that these visits wrote."""
    return {at for work in works for key, at in work.writes.items() if overlap(key, field)}


def stale(trail: Trail, redone: Mapping[str, str]) -> dict[str, Redo]:
    """Return the finished steps that must run again, in the order in which they ran.

    ``redone`` maps steps that are known to run again to the reason. Steps that read their results, or a version that an
    edit replaced, follow.
    """
    works = sorted(trail.works.values(), key=lambda each: each.seq)
    gone, found = _edited_pairs(trail), dict[str, Redo]()
    while True:
        before = dict(found), len(gone)
        for work in works:
            reads = {pair: first for pair, first in work.read().items() if pair in gone}
            if not reads and work.step not in redone:
                continue
            why = next((f"upstream changed: {gone[pair]}" for pair in reads), "") or redone[work.step]
            known = found.get(work.step, Redo(why, since=work.seq))
            found[work.step] = msgspec.structs.replace(known, since=min(known.since, *reads.values(), work.seq))
            for pair in _built_on(trail, work, found[work.step].since):
                gone.setdefault(pair, f"{work.step} runs again")
        if before == (found, len(gone)):
            return {work.step: found[work.step] for work in works if work.step in found}


def _edited_pairs(trail: Trail) -> dict[tuple[str, int], str]:
    """Return the versions that edits replaced, each with the reason to show."""
    edited = [work for work in trail.works.values() if work.edit_seqs]
    found: dict[tuple[str, int], str] = {}
    for pair in trail.replaced:
        writer = next((work.step for work in edited if any(overlap(pair[0], key) for key in work.writes)), "")
        found[pair] = f"a file of {writer} was edited" if writer else f"{pair[0]} was edited"
    return found


def _built_on(trail: Trail, work: Work, since: int) -> Iterator[tuple[str, int]]:
    """Yield the versions that become invalid when a visit runs again: its own, and those built on them.

    In a loop, also yield the versions of its earlier visits, starting with the checkpoint ``since``.
    """
    for field, version in work.writes.items():
        yield field, version
        yield from (pair for pair in trail.readers(work, field) if pair[1] >= version)
    theirs = {at for other in trail.works.values() if other is not work for at in other.writes.values()}
    for pair in {pair for other in trail.works.values() for pair in other.read()} if since < work.seq else ():
        if since <= pair[1] < work.seq and pair[1] not in theirs and any(overlap(pair[0], key) for key in work.writes):
            yield pair
