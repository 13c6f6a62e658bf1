"""The description of a workflow as plain data: for programs that show its sessions and do not have its code."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class CheckDescription(msgspec.Struct, frozen=True):
    """A step's ``when``. ``reads`` are paths in the state; ``whole_state``: it reads everything."""

    name: str
    reads: tuple[str, ...] = ()
    whole_state: bool = False


class RetryDescription(msgspec.Struct, frozen=True):
    """How a step is retried: see `Retry`. ``on`` are the names of the exceptions."""

    attempts: int
    first: float
    factor: float
    longest: float
    jitter: float
    on: tuple[str, ...]


class ArtifactDescription(msgspec.Struct, frozen=True):
    """An artifact that a step publishes: see `Artifact`. ``codec`` is ``json``, ``text`` or ``custom``."""

    path: str
    field: str
    codec: Literal["json", "text", "custom"]
    count: int | str | None = None
    min_bytes: int = 0


class StepDescription(msgspec.Struct, frozen=True):
    """A step. ``reads`` and ``writes`` are paths in the state; ``whole_state``: it reads everything.

    ``scope`` names the scope that limits it. ``was`` are its former names. ``timeout`` is in seconds.
    """

    name: str
    agent: str = ""
    reads: tuple[str, ...] = ()
    whole_state: bool = False
    writes: tuple[str, ...] = ()
    when: CheckDescription | None = None
    scope: str | None = None
    retry: RetryDescription | None = None
    timeout: float | None = None
    pause: Literal["operation", "step"] = "operation"
    publishes: tuple[ArtifactDescription, ...] = ()
    was: tuple[str, ...] = ()


class RouteDescription(msgspec.Struct, frozen=True):
    """The route after a step. ``targets`` are the steps that it may lead to; None is the end."""

    name: str
    after: str
    targets: tuple[str | None, ...]
    reads: tuple[str, ...] = ()
    whole_state: bool = False


class GuardDescription(msgspec.Struct, frozen=True):
    """A guard after a step."""

    name: str
    after: str
    reads: tuple[str, ...] = ()
    whole_state: bool = False


class ScopeDescription(msgspec.Struct, frozen=True):
    """The fields that one agent may read and write. ``*`` in ``reads`` means all."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class Description(msgspec.Struct, frozen=True):
    """A workflow as plain data: its steps, the arrows between them, and the JSON schema of its state.

    ``steps`` are in the order of the workflow's list. ``state`` is None if only the names of the steps are known.
    ``migrations`` are the versions that a migration starts from. ``returns`` is the field of a function's result.
    """

    name: str
    version: int
    steps: tuple[StepDescription, ...]
    routes: tuple[RouteDescription, ...] = ()
    guards: tuple[GuardDescription, ...] = ()
    scopes: tuple[ScopeDescription, ...] = ()
    events: tuple[str, ...] = ()
    migrations: tuple[int, ...] = ()
    guest: bool = False
    returns: str | None = None
    state: dict[str, Any] | None = None

    @property
    def outline(self) -> tuple[str, ...]:
        """The names of the steps."""
        return tuple(each.name for each in self.steps)

    def targets(self, step: str) -> tuple[str | None, ...]:
        """Return the steps that may come after a step. None is the end."""
        for route in self.routes:
            if route.after == step:
                return route.targets
        position = self.outline.index(step) + 1
        return (self.steps[position].name if position < len(self.steps) else None,)

    def mermaid(self) -> str:
        """Return the workflow as a Mermaid flowchart. Guards are hexagons; routes are diamonds with all targets."""
        lines = ["flowchart TD", '    start(["start"]) --> s0']
        for number, each in enumerate(self.steps):
            lines += self._drawn(number, each)
        if any(None in self.targets(each.name) for each in self.steps):
            lines.append('    done(["end"])')
        return "\n".join(lines) + "\n"

    def _drawn(self, number: int, each: StepDescription) -> list[str]:
        """Draw a step and its outgoing arrows. Nodes are numbered, because a step may have the name ``end``."""
        when = f"<br/>when {_label(each.when.name)}" if each.when else ""
        here, lines = f"s{number}", [f'    s{number}["{each.name}{when}"]']
        for index, guard in enumerate(guard for guard in self.guards if guard.after == each.name):
            lines.append(f'    {here} --> g{number}_{index}{{{{"guard {_label(guard.name)}"}}}}')
            here = f"g{number}_{index}"
        for route in self.routes:
            if route.after == each.name:
                lines.append(f'    {here} --> r{number}{{"{_label(route.name)}"}}')
                here = f"r{number}"
        ends = [f"s{self.outline.index(target)}" if target else "done" for target in self.targets(each.name)]
        return lines + [f"    {here} --> {end}" for end in ends]

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON data."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found


def _label(name: str) -> str:
    return "lambda" if name == "<lambda>" else name


class StoredDescription(msgspec.Struct, frozen=True):
    """A description as a store keeps it. ``digest`` is the SHA-256 of ``document``, the description as JSON.

    ``seen_at`` is when an engine last confirmed that it uses the description, within a day.
    """

    workflow: str
    version: int
    digest: bytes
    document: bytes
    seen_at: int


MOST_DESCRIPTIONS = 20
"""How many descriptions of one version of a workflow a store keeps: those that were used last."""
