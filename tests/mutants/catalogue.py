"""All mutants, in the order of the rooms."""

from __future__ import annotations

from tests.mutants.engine import ENGINE
from tests.mutants.runtime import RUNTIME
from tests.mutants.stores import STORES
from tests.mutants.values import VALUES

CATALOGUE = (*STORES, *RUNTIME, *ENGINE, *VALUES)

SHORT = (
    "old-fence-commits", "steal-unasked", "paused-session-claimed", "abort-not-raised", "kept-session-taken",
    "crash-not-counted", "failed-commit-acknowledged", "refusal-leaves-writes", "mail-missed-while-parking",
    "driven-child-removed", "schedule-overwritten", "double-receipt", "no-safe-point-inside", "paid-twice-by-retry",
    "idempotency-key-changes", "owners-by-small-letters", "edit-of-a-newer-state", "rewind-keeps-questions",
    "redaction-misses-operations", "mail-lost-by-export",
)  # fmt: skip
"""One mutant for each promise and each group of verbs. The short tier of the tests must catch all of them."""
