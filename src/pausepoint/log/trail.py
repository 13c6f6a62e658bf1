"""What a log says about the making of artifacts: which visit left which files, and from which versions of fields.

The *version* of a field is the number of the record that wrote it. A checkpoint that read a version which has been
replaced since is *stale*, and so is every reader of what it wrote. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pausepoint.definition.fields import overlap
from pausepoint.log.state import Change


class FileLeft(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file: where it lies in the session's folder, what it shows, and its content by hash.

    ``pattern`` is the path as its artifact was declared, ``key`` the entry of a dict that it is, if it is one. ``at``
    is the record that has its content.
    """

    path: str
    pattern: str
    field: str
    sha256: str
    size: int
    key: str = ""
    at: int = 0


class Left(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a checkpoint says about its visit: the versions that it read, the files that it left, what it has cost.

    ``code`` tells one text of the step's function from another; ``places`` are those that it reads, whether somebody
    had written to them or not. Where an earlier checkpoint is kept, ``of`` is its number and ``writes`` the versions
    that its fields keep.
    """

    reads: dict[str, int]
    files: tuple[FileLeft, ...] = ()
    code: str = ""
    usd: int = 0
    of: int = 0
    writes: dict[str, int] = {}
    took: int = 0
    places: tuple[str, ...] = ()


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last finished visit of a step. ``seq`` is its checkpoint; ``edits`` are records that changed what it left.

    ``made`` is the checkpoint of the visit that really ran, where this one was kept. ``grown`` are the fields that it
    added to, so that what was there before is still in them. ``past``, in a loop: versions that earlier visits read and
    that still stand, and the checkpoint of the first that did.
    """

    step: str
    visit: int
    seq: int
    at: int
    reads: dict[str, int]
    writes: dict[str, int] = {}
    files: tuple[FileLeft, ...] = ()
    code: str = ""
    took: int = 0
    usd: int = 0
    version: int = 1
    skipped: str = ""
    edits: tuple[int, ...] = ()
    by: str | None = None
    made: int = 0
    grown: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    past: tuple[tuple[str, int, int], ...] = ()

    def read(self) -> dict[tuple[str, int], int]:
        """The versions that this visit and those before it have read, each with the checkpoint of the first."""
        return dict.fromkeys(self.reads.items(), self.seq) | {(key, at): first for key, at, first in self.past}


class Adopted(msgspec.Struct, frozen=True):
    """A file as somebody has changed it, and what that means for the state. ``same``: nothing, it says what it said."""

    file: FileLeft
    step: str
    change: Change
    same: bool = False


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint that stays although one before it is redone: what it wrote is written again, nothing runs."""

    changes: tuple[Change, ...]
    left: Left
    skipped: str = ""
    edits: tuple[int, ...] = ()
    by: str | None = None

    def holds(self, versions: Mapping[str, int]) -> bool:
        """Whether what the step has read are still the versions that there are."""
        return self.left.reads == read_of(versions, self.left.places)


class Redo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that runs again, and why; ``spared`` are files of it that are still good.

    That is, as long as what it reads are these versions. ``since`` is the checkpoint of the first visit to redo.
    """

    why: str
    spared: tuple[FileLeft, ...] = ()
    reads: dict[str, int] = {}
    since: int = 0


class Trail(msgspec.Struct, omit_defaults=True):
    """All of that, folded, for a session that has a folder.

    ``versions``: of each field, the record that wrote it. ``replaced``: versions that an edit has taken the place of,
    while some visit has read them. ``known``: all hashes that this session ever recorded for a path. ``pending``: steps
    an edit of whose files is not in the state yet, because later steps wrote to the same field. ``edited``: what was
    edited in the state, and the last record that did. ``rebuilt_from``: the session that the folder belonged to before.
    """

    folder: str
    works: dict[str, Work] = {}
    versions: dict[str, int] = {}
    replaced: tuple[tuple[str, int], ...] = ()
    known: dict[str, tuple[str, ...]] = {}
    kept: dict[str, Kept] = {}
    redo: dict[str, Redo] = {}
    pending: tuple[str, ...] = ()
    edited: dict[str, int] = {}
    rebuilt_from: str = ""

    def files(self) -> dict[str, tuple[FileLeft, Work]]:
        """The newest version of each path, and whose it is."""
        found: dict[str, tuple[FileLeft, Work]] = {}
        for work in sorted(self.works.values(), key=lambda each: each.seq):
            found.update((file.path, (file, work)) for file in work.files)
        return found

    def finished(self, work: Work) -> None:
        """Take in a checkpoint."""
        kept = self.kept.pop(work.step, None)
        self.redo.pop(work.step, None)
        if kept is not None and work.made:
            work = msgspec.structs.replace(work, skipped=kept.skipped, edits=kept.edits, by=kept.by)
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
        """What a step has read in the rounds of a loop so far. What was written anew since, nobody can edit."""
        stand = {*self.versions.values(), *(at for work in self.works.values() for at in work.writes.values())}
        return tuple((key, at, first) for (key, at), first in before.read().items() if at in stand)

    def carried(self, renamed: Mapping[str, str], moved: Mapping[str, str]) -> None:
        """Steps are called otherwise (old → new), and so are fields (new → old)."""
        names = _Names(renamed, {old: new for new, old in moved.items()})
        self.works = {names.step(step): names.work(work) for step, work in self.works.items()}
        self.versions, self.edited = names.versions(self.versions), names.versions(self.edited)
        self.replaced = tuple((names.path(key), version) for key, version in self.replaced)
        self.kept = {names.step(step): names.kept(kept) for step, kept in self.kept.items()}
        self.redo = {names.step(step): redo for step, redo in self.redo.items()}
        self.pending = tuple(names.step(step) for step in self.pending)

    def runs_again(self, steps: Iterable[str], why: str) -> bool:
        """Have steps that were to be kept run instead; whether there is one of these."""
        named = [step for step in steps if step in self.kept]
        for step in named:
            del self.kept[step]
            self.redo[step] = Redo(why)
        return bool(named)

    def knows(self, file: FileLeft) -> None:
        """From now on this content is known to be ours."""
        before = self.known.get(file.path, ())
        if file.sha256 not in before:
            self.known[file.path] = (*before, file.sha256)

    def adopts(self, seq: int, by: str | None, adopted: Iterable[Adopted]) -> list[Change]:
        """Take in edits of files; what of that changes the state as it stands now."""
        changes, changed = list[Change](), dict[str, dict[str, FileLeft]]()
        for each in adopted:
            work, file = self.works[each.step], msgspec.structs.replace(each.file, at=seq)
            writes = work.writes
            if not each.same:
                changes += self._replaces(work, each, seq)
                writes = {**writes, file.field: seq}
            edits = work.edits if seq in work.edits else (*work.edits, seq)
            self.works[each.step] = msgspec.structs.replace(work, writes=writes, edits=edits, by=by)
            changed.setdefault(each.step, {})[file.path] = file
            self.knows(file)
        for step, new in changed.items():
            files = tuple(new.get(file.path, file) for file in self.works[step].files)
            self.works[step] = msgspec.structs.replace(self.works[step], files=files)
        return changes

    def _replaces(self, work: Work, edit: Adopted, seq: int) -> list[Change]:
        """What a file says takes the place of what its step wrote: for its readers, and, if it stands, in the state."""
        stands = self._stands(work, edit.file.field)
        if stands:
            self.versions[edit.file.field] = seq
        elif edit.step not in self.pending:
            self.pending = (*self.pending, edit.step)
        self.replaced = (*self.replaced, *self.readers(work, edit.file.field))
        return [edit.change] if stands else []

    def readers(self, work: Work, field: str) -> list[tuple[str, int]]:
        """The versions of a field that visits after this one have read from it, or from before it."""
        later = [other for other in self.works.values() if other.seq > work.seq]
        pairs = {pair for other in later for pair in other.read() if overlap(pair[0], field)}
        stands = self._versions_of(work, field)
        return sorted(pair for pair in pairs if pair[1] in stands and pair not in self.replaced)

    def _stands(self, work: Work, field: str) -> bool:
        """Whether no visit after this one has written to the field."""
        now = {at for key, at in self.versions.items() if overlap(key, field)}
        return now.isdisjoint(_written(self._later(work), field))

    def _later(self, work: Work) -> list[Work]:
        return sorted((other for other in self.works.values() if other.seq > work.seq), key=lambda each: each.seq)

    def _versions_of(self, work: Work, field: str) -> set[int]:
        """The versions of a field that have in them what that visit left there; also where others have added to it.

        An edit of the state is one of them: it came in the place of what the visit had left.
        """
        later, found, until = self._later(work), set[int](), float("inf")
        for other in later:
            added = [at for key, at in other.writes.items() if overlap(key, field) and key in other.grown]
            if not added and any(field == key or field.startswith(f"{key}.") for key in other.writes):
                until = other.seq  # overwritten: from here on it is another's
                break
            found.update(added)
        read = {at for other in later for key, at in other.reads.items() if overlap(key, field)}
        now = {at for key, at in self.versions.items() if overlap(key, field)}
        own = {*work.edits, *work.writes.values()}
        theirs = _written(later, field)
        return found | {at for at in read | now | own if at not in theirs and (at < until or at in own)}

    def standing(self) -> dict[str, int]:
        """What was edited in the state and no step has written since, with its version; that may be an edit of a file.

        What files show of it is then not what the state has, or not all of it.
        """
        adopted = {seq for work in self.works.values() for seq in work.edits}
        now = {path: max(read_of(self.versions, (path,)).values(), default=0) for path in self.edited}
        return {path: at for path, at in now.items() if at == self.edited[path] or at in adopted}

    def read_by(self, paths: Iterable[str]) -> dict[str, int]:
        """The present versions of what is read at some places of the state."""
        return read_of(self.versions, paths)


class _Names(msgspec.Struct, frozen=True):
    """What steps and fields are called now, by what they were called."""

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

    def files(self, files: Iterable[FileLeft]) -> tuple[FileLeft, ...]:
        return tuple(msgspec.structs.replace(file, field=self.path(file.field)) for file in files)

    def work(self, work: Work) -> Work:
        return msgspec.structs.replace(
            work, step=self.step(work.step), reads=self.versions(work.reads), writes=self.versions(work.writes),
            files=self.files(work.files), grown=self.paths(work.grown), places=self.paths(work.places),
            past=tuple((self.path(key), at, first) for key, at, first in work.past),
        )  # fmt: skip

    def kept(self, kept: Kept) -> Kept:
        left = msgspec.structs.replace(
            kept.left, reads=self.versions(kept.left.reads), writes=self.versions(kept.left.writes),
            files=self.files(kept.left.files), places=self.paths(kept.left.places),
        )  # fmt: skip
        changes = tuple(msgspec.structs.replace(change, path=self.path(change.path)) for change in kept.changes)
        return msgspec.structs.replace(kept, changes=changes, left=left)


def read_of(versions: Mapping[str, int], places: Iterable[str]) -> dict[str, int]:
    """Of some versions those that are read at these places."""
    wanted = tuple(places)
    return {key: version for key, version in versions.items() if any(overlap(key, path) for path in wanted)}


def _written(works: Iterable[Work], field: str) -> set[int]:
    """The versions of a field that some visits have written."""
    return {at for work in works for key, at in work.writes.items() if overlap(key, field)}


def stale(trail: Trail, redone: Mapping[str, str]) -> dict[str, Redo]:
    """The finished steps that have to run again, in the order in which they ran, why, and since which visit.

    ``redone`` are those of which that is known already. Who read what they wrote, or what an edit replaced, follows.
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
    """The versions that edits have taken the place of, and what to say about each."""
    edited = [work for work in trail.works.values() if work.edits]
    found: dict[tuple[str, int], str] = {}
    for pair in trail.replaced:
        writer = next((work.step for work in edited if any(overlap(pair[0], key) for key in work.writes)), "")
        found[pair] = f"what {writer} left was edited" if writer else f"{pair[0]} was edited"
    return found


def _built_on(trail: Trail, work: Work, since: int) -> Iterator[tuple[str, int]]:
    """The versions that are no more when a visit is redone: its own, and those that were made of them.

    In a loop also those of its earlier visits, ``since`` the first that is redone.
    """
    for field, version in work.writes.items():
        yield field, version
        yield from (pair for pair in trail.readers(work, field) if pair[1] >= version)
    theirs = {at for other in trail.works.values() if other is not work for at in other.writes.values()}
    for pair in {pair for other in trail.works.values() for pair in other.read()} if since < work.seq else ():
        if since <= pair[1] < work.seq and pair[1] not in theirs and any(overlap(pair[0], key) for key in work.writes):
            yield pair
