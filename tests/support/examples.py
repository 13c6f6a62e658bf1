"""How much Hypothesis does for a slow property."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

USUAL_PROFILE = 100
"""The number of examples in Hypothesis's default profile and in the suite's profile."""


def examples(usual: int) -> int:
    """Return ``usual``, or the profile's number if it is larger (``--hypothesis-profile=explore``)."""
    return settings().max_examples if explores() else usual


def explores() -> bool:
    """Return whether the run searches for more than the suite does."""
    return settings().max_examples > USUAL_PROFILE


def run_histories(machine: type[RuleBasedStateMachine], usual: int, steps: int) -> None:
    """Run a state machine over random histories.

    The suite reports a failing history as it was found. Shortening it would take up to five minutes, so only the
    profile that explores does it.
    """
    wanted = settings(max_examples=examples(usual), stateful_step_count=steps)
    if not explores():
        kept = set(wanted.phases) - {Phase.shrink, Phase.explain}
        wanted = settings(wanted, phases=[phase for phase in Phase if phase in kept])
    try:
        run_state_machine_as_test(machine, settings=wanted)
    except BaseException as error:
        error.add_note("To shorten this history, run the test with --hypothesis-profile=explore.")
        raise
