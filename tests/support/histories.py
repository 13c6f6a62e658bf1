"""Replay a given history: the rules of a state machine in a fixed order, with the machine's usual checks.

A Hypothesis search finds unexpected faults. A fixed history shows quickly, and every time, that the machine notices
a known fault.
"""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

Act = tuple[str, dict[str, Any]]
"""A rule and its arguments."""


class Drawn:
    """Draws the given values instead of values that Hypothesis chooses."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def draw(self, strategy: object, label: str = "") -> Any:
        return self.values.pop(0)


def play(machine: RuleBasedStateMachine, history: list[Act], unchecked: int = 0) -> None:
    """Run a history, check all invariants after every rule, and tear the machine down.

    ``unchecked`` is the number of rules at the beginning that another history has checked.
    """
    try:
        for number, (name, given) in enumerate(history):
            getattr(machine, name)(**given)
            for invariant in machine.invariants if number >= unchecked else ():
                invariant.function(machine)
    finally:
        machine.teardown()
