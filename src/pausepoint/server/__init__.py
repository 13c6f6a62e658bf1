"""The HTTP server: an ASGI application over an engine, and the command ``pausepoint serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.server.asgi import app
    from pausepoint.server.people import Person
    from pausepoint.server.problems import Problem
    from pausepoint.server.sites import Action, Site, Visit
    from pausepoint.server.tokens import Tokens
    from pausepoint.server.visitors import Visitors

_HOMES = {
    "Action": "sites",
    "Person": "people",
    "Problem": "problems",
    "Site": "sites",
    "Tokens": "tokens",
    "Visit": "sites",
    "Visitors": "visitors",
    "app": "asgi",
}

__all__ = [
    "Action",
    "Person",
    "Problem",
    "Site",
    "Tokens",
    "Visit",
    "Visitors",
    "app",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
