"""When a run pauses itself, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Safety:
    """The limits at which a run pauses itself. None switches a limit off.

    ``budget_share``: this share of the budget is spent. ``failures_in_a_row``: this many tasks failed, and no task was
    completed in between. ``same_error``: this many tasks failed with the same error.
    """

    budget_share: float | None = 0.8
    failures_in_a_row: int | None = 5
    same_error: int | None = 3

    def __post_init__(self) -> None:
        if self.budget_share is not None and not 0 < self.budget_share <= 1:
            raise ValueError(f"budget_share must be above 0 and at most 1, or None, not {self.budget_share!r}.")
        for name in ("failures_in_a_row", "same_error"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, or None, not {count!r}.")


class SafetyWatch:
    """Counts failures and spending since the last start or resume, because the person who resumes knows the rest."""

    def __init__(self, safety: Safety) -> None:
        self.safety = safety
        self.forget()

    def forget(self) -> None:
        """Start counting again."""
        self._in_a_row = 0
        self._errors: Counter[str] = Counter()
        self._share = 0.0

    def done(self) -> None:
        """Count a task that is done."""
        self._in_a_row = 0

    def failed(self, error: str) -> str:
        """Count a failed task. Return the reason to stop, or an empty string."""
        self._in_a_row += 1
        self._errors[error] += 1
        safety, same = self.safety, self._errors[error]
        if safety.same_error is not None and same >= safety.same_error:
            return f"{same} task{'s' if same > 1 else ''} failed in the same way: {error}"
        if safety.failures_in_a_row is not None and self._in_a_row >= safety.failures_in_a_row:
            if self._in_a_row == 1:
                return f"a task failed with {error}"
            return f"{self._in_a_row} tasks in a row failed, the last one with {error}"
        return ""

    def spent(self, spent: float, budget: float) -> str:
        """Return the reason to stop if spending has passed the limit since the last resume, or an empty string."""
        share, before = (spent / budget if budget else 1.0), self._share
        self._share = share
        limit = self.safety.budget_share
        if limit is None or not before < limit <= share:
            return ""
        return f"${spent:.4f} of a budget of ${budget:.4f} is spent, which is {share:.0%}"
