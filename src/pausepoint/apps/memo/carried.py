"""What a resume carries over to agents that run again: people's edits, earlier results, and the reasons of reviewers.

An agent that runs again sees the state from before its visit. So the program puts these fields into the session before
it resumes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pausepoint import Session
from pausepoint.apps.input import decoded
from pausepoint.apps.memo.decisions import Edits
from pausepoint.apps.memo.models import HandEdit, MemoState, Remark, Review
from pausepoint.apps.memo.workflow import SECTIONS
from pausepoint.engine import Plan

_FOLDER = str(PurePosixPath(SECTIONS).parent)
_MAKERS = {"readings": "section_research", "drafted": "draft"}
"""The fields with what agents have made earlier, and the agents. An agent makes only what has other inputs."""


@dataclass(frozen=True)
class Carried:
    """The fields to carry over. ``has_new``: the edits of people differ from those in the state."""

    made: dict[str, Any]
    hand_edits: list[HandEdit]
    remarks: list[Remark]
    has_new: bool

    @property
    def merged(self) -> tuple[str, ...]:
        """The files whose edits are merged into what the agents write."""
        return tuple(dict.fromkeys(f"{_FOLDER}/{each.section}.md" for each in self.hand_edits))

    def over_rerun(self, ahead: list[str]) -> dict[str, Any]:
        """Return the fields for a resume that runs these agents."""
        found: dict[str, Any] = {"hand_edits": self.hand_edits} if self.has_new else {}
        return found | {field: value for field, value in self.made.items() if _MAKERS[field] in ahead}

    def over_rewind(self, rejected: Review | None, redo: str | None) -> dict[str, Any]:
        """Return the fields for a rewind. What the user wants to redo is not reused."""
        found: dict[str, Any] = {"hand_edits": self.hand_edits} if self.hand_edits or self.has_new else {}
        new = [Remark(agent=rejected.agent, reason=rejected.reason)] if rejected is not None else []
        found |= {"remarks": [*self.remarks, *new]} if new or self.remarks else {}
        made = {field: type(value)() if _MAKERS[field] == redo else value for field, value in self.made.items()}
        return found | made


async def carried(session: Session[MemoState], state: MemoState, plan: Plan, edits: Edits | None) -> Carried:
    """Return what to carry over. Edits that the user discards are not."""
    made = {field: value for field in _MAKERS if (value := getattr(state, field))}
    if edits == "discard":
        return Carried(made, [], state.remarks, bool(state.hand_edits))
    paths = [
        each.path for each in plan.artifacts if each.state == "edited" and PurePosixPath(each.path).match(SECTIONS)
    ]
    new = [await _edit(session, path) for path in paths]
    return Carried(made, [*state.hand_edits, *new], state.remarks, bool(new))


async def _edit(session: Session[MemoState], path: str) -> HandEdit:
    before, after = [decoded(await session.artifact(path, version=version)) for version in ("recorded", "present")]
    return HandEdit(section=PurePosixPath(path).stem, base=before, text=after.replace("\r\n", "\n"))
