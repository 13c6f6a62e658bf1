"""Shortens a trial that went wrong: cuts steps, statements, sessions and faults as long as it still goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.faults.interpreter.faults import Trial, shorter
from tests.faults.interpreter.trial import Report, run

Once = Callable[[Trial, str, float], Report]

HANGS_AFTER = 10
"""Seconds after which a shorter trial counts as hanging. A wrong guess only makes the printed trial less useful."""

TRIES = 3
"""How often a shorter trial is run before it counts as right. Engines do not race the same way each time."""


def goes_wrong(trial: Trial, seed: str, once: Once = run, patience: float = HANGS_AFTER) -> Report | None:
    """Run a trial a few times, and return the first report with something wrong; None if all are right."""
    for attempt in range(TRIES):
        report = once(trial, f"{seed} {attempt}" if attempt else seed, patience)
        if report.wrong:
            return report
    return None


def shrink(
    trial: Trial, report: Report, seed: str, seconds: float = 60, once: Once = run
) -> tuple[Trial, Report]:  # fmt: skip
    """Return the shortest trial that was found within the time and still goes wrong, and its report."""
    ends_at = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for less in shorter(trial):
            if time.monotonic() > ends_at:
                return trial, report
            if not any(each.points for each in less.expected()):
                continue
            if (wrong := goes_wrong(less, seed, once)) is not None:
                trial, report, found = less, wrong, True
                break
    return trial, report
