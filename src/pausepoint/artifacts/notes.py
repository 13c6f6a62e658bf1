"""The engine's notes in a folder of artifacts: its session, the steps that are done, and the edits of the state.

Anyone can write into a folder, so every name in a note is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.definition.artifacts import OWN, unfit_file
from pausepoint.errors import FolderMisfit, FolderRefused
from pausepoint.log.state import Act
from pausepoint.log.trail import PublishedFile, Trail, Work
from pausepoint.model.files import is_hash
from pausepoint.model.ids import is_session_id, shortened

FORMAT = 1
"""The format of the notes in a folder. A newer format is refused."""

EDITED = "edited.json"

Noted = tuple[str, Act, msgspec.Raw]
"""A write that no file shows: path, act, value."""

Edited = tuple[str, int, msgspec.Raw]
"""An edit of the state: path, version, value."""


class SessionNote(msgspec.Struct, frozen=True):
    """``.pausepoint/session.json``: the session that owns the folder, and its first state, field by field.

    If the session was migrated, ``input`` is the state after record ``through`` instead. ``first`` is the step where
    the session began. A fork may begin at a later step, or after that step has ended (``held_by_guard``).
    """

    format: int
    session_id: str
    workflow: str
    version: int
    outline: tuple[str, ...]
    input: dict[str, msgspec.Raw]
    through: int = 0
    first: str = ""
    held_by_guard: bool = False

    @property
    def begins_at(self) -> str:
        """The first step that has a completion record."""
        return self.first or self.outline[0]


class DoneNote(msgspec.Struct, frozen=True):
    """``.pausepoint/done/<step>.json``: the completion record of a step.

    ``values`` are the writes of the step that none of its files shows. ``next`` is the step after it. ``edited`` are
    the edits of the state that were in effect when the step began.
    """

    format: int
    work: Work
    values: tuple[Noted, ...] = ()
    next: str | None = None
    edited: tuple[Edited, ...] = ()


class EditNote(msgspec.Struct, frozen=True):
    """``.pausepoint/edited.json``: the edits of the state since the last step ended. ``seq`` is the last edit."""

    format: int
    seq: int
    edited: tuple[Edited, ...] = ()


def session_note(data: bytes, folder: str) -> SessionNote:
    """Decode the session note of a folder.

    Raises `FolderRefused` if it is damaged, and `FolderMisfit` if a newer Pausepoint wrote it.
    """
    try:
        note = msgspec.json.decode(data, type=SessionNote)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise FolderRefused(
            f"File {folder}/{OWN}/session.json is damaged ({exc}). Delete it. A resume of the session writes it"
            " again; without the session, the folder is judged by its files alone.",
            path=folder,
        ) from exc
    if note.format > FORMAT:
        raise FolderMisfit(
            f"Folder {folder} was written by a newer Pausepoint (format {note.format}). Upgrade Pausepoint.",
            path=folder,
        )
    if not is_session_id(note.session_id) or not note.outline:
        wrong = "it lists no step" if is_session_id(note.session_id) else f"{shortened(note.session_id)} is not an id"
        raise FolderRefused(
            f"File {folder}/{OWN}/session.json cannot be used: {wrong}. Delete it. Without it, the folder is judged by"
            " its files alone.",
            path=folder,
        )
    return note


def check_free(found: bytes | None, folder: Path, session_id: str, before: str = "") -> SessionNote | None:
    """Return the session note of a folder, if there is one. Raises `FolderRefused` if another session owns it."""
    note = session_note(found, str(folder)) if found else None
    if note is not None and note.session_id not in (session_id, before):
        raise FolderRefused(
            f"Folder {folder} belongs to session {shortened(note.session_id)}. Choose another folder for this session.",
            session_id=session_id, path=str(folder),
        )  # fmt: skip
    return note


def unfit_work(work: Work, step: str) -> str:
    """Return why a completion record cannot be used for a step; empty if it can. Anyone may have written it."""
    if work.step != step:
        return f"it is the record of step {shortened(work.step)}"
    for file in work.files:
        if problem := unfit_file(file.path):
            return f"it names the file {shortened(file.path)}, but {problem}"
        if not is_hash(file.sha256):
            return f"the hash of {file.path} is not 64 hexadecimal digits"
    return ""


def noted_work(data: bytes | None) -> Work | None:
    """Return what a completion record says about its step; None if it is absent or damaged."""
    try:
        return msgspec.json.decode(data, type=DoneNote).work if data else None
    except (msgspec.MsgspecError, RecursionError):
        return None  # it is written again


def pretty(note: Any) -> bytes:
    """Return a note as indented JSON, which people can read."""
    return msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n"


LastPublished = Mapping[str, tuple[str, int]]
"""What was last published at each path: the hash of the content, and the number of the record that has it."""


def last_published(notes: Mapping[str, bytes]) -> LastPublished:
    """Return what was last published at each path, according to the completion records in the folder."""
    found: dict[str, tuple[str, int]] = {}
    works = [noted_work(data) for name, data in notes.items() if name.startswith("done/")]
    for work in sorted((each for each in works if each is not None), key=lambda each: each.seq):
        found.update((file.path, (file.sha256, max(work.seq, file.at))) for file in work.files)
    return found


def unpublished(file: PublishedFile, work: Work, last: LastPublished) -> bool:
    """Return whether a file was recorded, but never published, because the disk refused it."""
    return work.unstaged and file.at not in work.edit_seqs and last.get(file.path, ("", 0))[0] != file.sha256


def put_back(
    trail: Trail, folder: ArtifactFolder, file: PublishedFile, work: Work, digest: str, last: LastPublished
) -> bool:
    """Return whether a person put a file back to an older version that this session has recorded for its path.

    Otherwise the folder is not up to date with the log, after a crash or a rewind: it has what was last published, or
    content whose publication was interrupted before its completion record.
    """
    if file.path not in last:
        return False
    published, at = last[file.path]
    if digest == published:
        adopted = file.at in work.edit_seqs and file.at > at  # and put back afterwards, or the folder is a backup
        return adopted and folder.kept_edit(file.sha256) is not None
    return digest != trail.known[file.path][-1] or folder.kept_edit(digest) is not None
