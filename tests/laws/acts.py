"""Rules of the store machine with their arguments, to write down a history."""

from __future__ import annotations

from typing import Any

from tests.support.histories import Act, Drawn


def create(session_id: str = "ant", above: str | None = None, **given: Any) -> Act:
    options = {"claim": True, "by": None, "paused": False, "budget": False, "kept": False, "shares": False}
    return "create", {"session_id": session_id, "engine": 0, "above": above, **options, **given}


def drive(rule: str, session_id: str = "ant", **given: Any) -> Act:
    """Return a rule for an engine that believes it holds the session."""
    return rule, {"data": Drawn((0, session_id)), **given}


def ask(rule: str, *drawn: Any, **given: Any) -> Act:
    """Return a rule with drawn values. By default it draws the first session."""
    return rule, {"data": Drawn(*(drawn or ("ant",))), "engine": 0, **given}


def go_on(session_id: str = "ant", **given: Any) -> Act:
    return drive("go_on", session_id, **{"size": 1, "spend": 0, "only": False, "big": False, "framed": False, **given})


def pause(tree: bool = False, standing: bool = False, **query: Any) -> Act:
    how = {"mode": "finish", "by": None, "freeze": True, "standing": standing}
    return "pause", {"engine": 0, "query": query, "tree": tree, **how}


def unpause() -> Act:
    return ask("unpause", by=None, budget=None, wake=False, exempt=True)


def lift() -> Act:
    return "lift", {"engine": 0, "by": None}


def park() -> Act:
    return drive("park", ended=None)


def send() -> Act:
    return ask("send", by=None)


def asked(lasts: int | None = None, key: str = "") -> Act:
    return drive("ask", lasts=lasts, key=key)


def answered(value: Any = 1, seen: bool | None = None, message: bool = False) -> Act:
    """Return a rule that answers the first question."""
    return "answer_the_first", {"value": value, "seen": seen, "message": message}
