"""Budgets: what a session and its children may spend, in dollars, tokens and operations."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import msgspec

MOST = 2**60
"""The most tokens or micro-dollars that one call can record."""


def is_count(value: object) -> bool:
    """Return whether a value is a whole number that can be stored. ``True`` is none: it would be stored as a word.

    >>> is_count(3), is_count(True), is_count(-1)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def to_micro_usd(usd: float | Decimal) -> int:
    """Convert dollars to micro-dollars.

    >>> to_micro_usd(0.25), to_micro_usd(Decimal("0.000001"))
    (250000, 1)
    """
    try:
        amount = Decimal(str(usd))
    except InvalidOperation:
        amount = Decimal("NaN")
    if isinstance(usd, bool) or not 0 <= (amount if amount.is_finite() else -1) <= MOST // 1_000_000:
        raise ValueError(f"Money must be an amount of dollars, 0 or more, not {usd!r:.80}.")
    return int((amount * 1_000_000).to_integral_value())


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a session and its children may spend. The session pauses when one of the limits is reached.

    ``usd`` and ``tokens`` are compared with what the steps report with ``ctx.spend``. ``operations`` is compared with
    the number of operations: each remembered one counts, and each failed attempt that is retried. A limit that is not
    given stays as it is; for a new session that means no limit.

    >>> Budget(usd=5, operations=200)
    Budget(usd=5, tokens=None, operations=200)
    """

    usd: float | Decimal | None = None
    tokens: int | None = None
    operations: int | None = None

    def __post_init__(self) -> None:
        if self.usd is not None:
            to_micro_usd(self.usd)
        for name in ("tokens", "operations"):
            value = getattr(self, name)
            if value is not None and not is_count(value):
                raise ValueError(f"Budget({name}={value!r}) must be a whole number, 0 or more.")
        if self.usd is None and self.tokens is None and self.operations is None:
            raise ValueError("This Budget has no limit. Pass usd=, tokens= or operations=.")

    def __str__(self) -> str:
        """Return the budget as the command line takes it.

        >>> str(Budget(usd=2.5, tokens=1000))
        'usd=2.5,tokens=1000'
        """
        limits = {"usd": self.usd, "tokens": self.tokens, "operations": self.operations}
        return ",".join(f"{name}={value}" for name, value in limits.items() if value is not None)


Amount = Budget | float | Decimal
"""A budget as callers pass it. A plain number is an amount of dollars."""


class Allowance(msgspec.Struct, frozen=True):
    """A budget as it is stored: micro-dollars, tokens and operations; None where there is no limit."""

    usd: int | None = None
    tokens: int | None = None
    operations: int | None = None

    def given(self) -> dict[str, int]:
        """Return the limits that are set, by the names of the columns."""
        limits = {"budget_usd": self.usd, "budget_tokens": self.tokens, "budget_operations": self.operations}
        return {name: value for name, value in limits.items() if value is not None}


NO_BUDGET = Allowance()


def allowance_of(given: Amount | None) -> Allowance:
    """Return a caller's budget as it is stored.

    >>> allowance_of(0.5), allowance_of(Budget(tokens=10)).given()
    (Allowance(usd=500000, tokens=None, operations=None), {'budget_tokens': 10})
    """
    if given is None:
        return NO_BUDGET
    budget = given if isinstance(given, Budget) else Budget(usd=given)
    return Allowance(None if budget.usd is None else to_micro_usd(budget.usd), budget.tokens, budget.operations)


class Purse(NamedTuple):
    """What a session with a budget has spent, together with its children, and its limits."""

    session_id: str
    spent_usd: int
    spent_tokens: int
    spent_operations: int
    usd: int | None
    tokens: int | None
    operations: int | None


class Spending(NamedTuple):
    """An amount of micro-dollars, tokens and operations."""

    usd: int = 0
    tokens: int = 0
    operations: int = 0


NOTHING = Spending()


def reached(purses: Iterable[Purse], session_id: str, pending: Spending = NOTHING) -> str:
    """Return which budget of a session or its parents is used up; empty if none is. ``pending`` is not stored yet.

    >>> reached([Purse("a", 0, 900, 3, None, 1000, None)], "a", Spending(tokens=200))
    '1,100 of the 1,000 tokens of the budget are spent; resume with a higher budget'
    """
    for purse in purses:
        whose = "" if purse.session_id == session_id else f" of its parent session {purse.session_id!r}"
        usd, tokens = purse.spent_usd + pending.usd, purse.spent_tokens + pending.tokens
        operations = purse.spent_operations + pending.operations
        what = ""
        if purse.usd is not None and usd >= purse.usd:
            what = f"${usd / 1e6:.4f} of the ${purse.usd / 1e6:.4f} budget{whose} is spent"
        elif purse.tokens is not None and tokens >= purse.tokens:
            what = f"{tokens:,} of the {purse.tokens:,} tokens of the budget{whose} are spent"
        elif purse.operations is not None and operations >= purse.operations:
            what = f"{operations:,} of the {purse.operations:,} operations of the budget{whose} are used"
        if what:
            return f"{what}; resume with a higher budget"
    return ""
