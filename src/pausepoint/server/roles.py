"""The roles of signed-in people."""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["viewer", "answerer", "operator", "admin"]
"""What a person may do. Each role includes those before it, but an answerer sees only questions and their sessions."""

ROLES: tuple[Role, ...] = get_args(Role)
