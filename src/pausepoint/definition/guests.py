"""The single step of a guest workflow. Its code is the block of ``engine.visit``, in a program of its own."""

from __future__ import annotations

from typing import Any

from pausepoint.definition.steps import Step

VISIT = "visit"
"""The name of the step."""


class _Context:
    """Marks the parameter that gets the context."""

    __pausepoint_context__ = "async"


def guest_step(model: Any) -> Step[..., Any]:
    """Return the step of a guest workflow with this state. It reads the whole state and may write every field."""

    async def visit(_state: Any, _ctx: Any) -> Any:
        raise NotImplementedError  # `pausepoint.runtime.guests` runs the block instead

    fields = getattr(model, "model_fields", {})
    writable = [name for name, field in fields.items() if not field.frozen]
    visit.__annotations__ = {"_state": model, "_ctx": _Context, "return": dict[str, Any] if writable else None}
    found: Step[..., Any] = Step(visit, name=VISIT, writes=writable)
    found.many = bool(writable)
    return found
