"""The signed-in person: a name, a role, and what the person may see."""

from __future__ import annotations

import msgspec

from pausepoint.server.roles import ROLES, Role


class Person(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signed-in person or program.

    - ``name``: recorded in the history as ``by``.
    - ``role``: ``"viewer"``, ``"answerer"``, ``"operator"`` or ``"admin"``.
    - ``owner``: if set, the person sees only the sessions of this owner.
    - ``question``: if set, the person sees and answers only this question. Answer links set it.

    >>> Person("ann", role="operator").may("viewer")
    True
    >>> Person("bob", role="answerer").may("viewer")
    False
    """

    name: str
    role: Role = "viewer"
    owner: str | None = None
    question: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, not {self.role!r}.")

    def may(self, role: Role) -> bool:
        """Return whether this person may call a route of ``role``."""
        if self.role == "answerer":
            return role == "answerer"
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def sees_all(self) -> bool:
        """Whether the person may see and change things that concern all owners, such as the pause of everything."""
        return self.owner is None and self.question is None
