"""Find the folder to resume, its state, and its session, which is rebuilt if the store is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from pausepoint import Engine, Session
from pausepoint.apps.input import BadInput
from pausepoint.apps.memo import outline as outlines
from pausepoint.apps.memo.models import InvestmentType, MemoDocument, MemoMode, MemoState, document
from pausepoint.apps.memo.settings import deck_file, documents_folder, starting
from pausepoint.apps.memo.workflow import AGENTS, DECK, DRAFT, DRAFT_PAGE, FINAL, PAGE, memo
from pausepoint.artifacts import Detection, VersionFolders, detect
from pausepoint.errors import FolderRefused

INPUT = (
    "company_name", "company_data", "outline", "investment_type", "memo_mode", "deck", "documents"
)  # fmt: skip
"""The fields of the state that are input. Agents write the rest."""


class NothingThere(Exception):
    """There is no folder to resume."""


def chosen(folders: VersionFolders, version: str | None) -> Path:
    """Return the folder of a version, or the latest one. Raises `NothingThere` if there is none."""
    try:
        found = folders.latest() if version is None else folders.find(version)
    except FolderRefused as error:
        raise NothingThere(str(error)) from error
    if found is None:
        raise NothingThere(f"No artifacts found for {folders.name} in {folders.root}")
    return found


def given(state: MemoState) -> dict[str, Any]:
    """Return the input of a session, field by field."""
    return {name: getattr(state, name) for name in INPUT}


def looked_at(folder: Path, inputs: Callable[[], MemoState]) -> Detection:
    """Detect the state of a folder.

    Without completion records this needs the input, which gives the number of sections and whether there is a deck.
    """
    found = detect(folder, memo)
    if found.recorded:
        return found
    state = inputs()
    found = detect(folder, memo, **given(state))
    unread = state.deck is not None and not (folder / DECK).exists()
    return msgspec.structs.replace(found, resume_at=AGENTS[0]) if unread and found.resume_at != "start" else found


def detect_resume_point(folder: Path, state: MemoState) -> str:
    """Return the agent to run next, ``"start"`` or ``"complete"``."""
    return looked_at(folder, lambda: state).resume_at


async def session_of(
    engine: Engine, found: Detection, inputs: Callable[[], MemoState], incomplete: Literal["accept"] | None = None
) -> Session[MemoState]:
    """Return the session of a folder. Raises `FolderRefused`, without changes, if it cannot be resumed."""
    if found.recorded:
        return await engine.rebuild(found.folder, memo, incomplete=incomplete)
    return await engine.rebuild(found.folder, memo, incomplete=incomplete, **given(inputs()))


async def reconstruct(engine: Engine, folder: Path, state: MemoState) -> MemoDocument:
    """Rebuild the document from the files of a folder, with defaults for missing parts."""
    session = await session_of(engine, looked_at(folder, lambda: state), lambda: state)
    return document(await session.state())


@dataclass(frozen=True)
class Changes:
    """Changes to the input of a session. None means no change."""

    kind: InvestmentType | None = None
    mode: MemoMode | None = None
    outline: Path | None = None
    data: Path | None = None
    deck: Path | None = None
    documents: Path | None = None

    @property
    def options(self) -> dict[str, str | Path | None]:
        """The changes as command line options."""
        return {
            "--type": self.kind, "--mode": self.mode, "--outline": self.outline, "--data": self.data,
            "--deck": self.deck, "--documents": self.documents,
        }  # fmt: skip

    def fields(self, state: MemoState) -> dict[str, Any]:
        """Return the fields of the state that change. Raises `BadInput` for an unusable value."""
        wanted = self._of_options(state) if self.data is None else self._of_data(state)
        return {name: value for name, value in wanted.items() if value not in (None, getattr(state, name))}

    def _of_data(self, state: MemoState) -> dict[str, Any]:
        """Return the fields for new company data, which names its files as at a start."""
        return given(
            starting(
                state.company_name, data=self.data, deck=self.deck, documents=self.documents, outline=self.outline,
                kind=self.kind or state.investment_type, mode=self.mode or state.memo_mode,
            )
        )  # fmt: skip

    def _of_options(self, state: MemoState) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "investment_type": self.kind, "memo_mode": self.mode, "deck": self.deck and deck_file(self.deck),
            "documents": self.documents and documents_folder(self.documents),
        }  # fmt: skip
        if self.outline is not None:
            wanted["outline"] = outlines.read(self.outline)
        elif self.kind is not None and state.outline == outlines.read(outlines.default(state.investment_type)):
            wanted["outline"] = outlines.read(outlines.default(self.kind))
        return wanted


def check_company(wanted: str, found: str, where: str) -> None:
    """Refuse to resume the memo of another company whose name gives the same folder."""
    if found.casefold() != wanted.strip().casefold():
        raise BadInput(
            f"COMPANY: {where} is the memo of {found!r}, not of {wanted!r}. Use another --output for one of them."
        )


def check_agent(option: str, name: str | None) -> None:
    """Refuse an unknown agent."""
    if name is not None and name not in AGENTS:
        raise BadInput(f"{option}: There is no agent {name!r}. The agents: {', '.join(AGENTS)}.")


def page_file(folder: Path, state: MemoState) -> Path | None:
    """Return the path of the memo as a page: the final one, or that of the draft; None if there is none yet."""
    name = PAGE if state.page else DRAFT_PAGE if state.draft_page else None
    return folder / name if name else None


def memo_file(folder: Path) -> Path:
    """Return the path of the memo."""
    return folder / DRAFT


def final_of(folder: Path) -> MemoDocument:
    """Return the document of a finished memo."""
    return MemoDocument.model_validate_json((folder / FINAL).read_bytes())
