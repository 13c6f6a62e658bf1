"""Histories that are known: the rules of a state machine in a given order, judged as it would judge any other.

A search finds what nobody thought of. That an oracle notices a given fault is shown more quickly, and every time, by
the verbs after which it must.
"""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

Act = tuple[str, dict[str, Any]]
"""A rule and what it is given."""


class Drawn:
    """Draws what it is told to, instead of what Hypothesis would like."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def draw(self, strategy: object, label: str = "") -> Any:
        return self.values.pop(0)


def play(machine: RuleBasedStateMachine, history: list[Act]) -> None:
    """Go through a history, with a look at everything after every rule, and to the end."""
    try:
        for name, given in history:
            getattr(machine, name)(**given)
            for invariant in machine.invariants:
                invariant.function(machine)
    finally:
        machine.teardown()
