"""Spending of a step: money and tokens, each counted once, however often the step is interrupted."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from pausepoint.codec.values import encode, fingerprint
from pausepoint.log.replay import Effect
from pausepoint.runtime.frames import Frame
from pausepoint.runtime.visit import Visit, is_count, to_micro_usd

_ATTEMPTS = re.compile(r"(?:![\d.]+)?(?:@\d+)?$")


def spend(
    visit: Visit, frame: Frame, usd: float | Decimal, tokens: int | None, model: str | None,
    input_tokens: int, output_tokens: int,
) -> None:  # fmt: skip
    """Add money and tokens that the step has spent to the next record. ``tokens`` is by default the sum of both kinds.

    A further attempt spends again. One that was interrupted, and runs again, repeats what it had recorded.
    """
    visit.check_open()
    micros, usage = to_micro_usd(usd), _usage(model, input_tokens, output_tokens)
    total = input_tokens + output_tokens if tokens is None else tokens
    if not is_count(total):
        raise ValueError(f"tokens must be a whole number, 0 or more, not {tokens!r}.")
    total = int(total)  # a subclass, such as an enum, may be encoded as something else
    print_ = f"~{fingerprint(usage).hex()[:12]}" if usage else ""
    first = visit.nth(frame, f"{frame.scope}/spend:{micros}:{total}{print_}")
    tries, line, ledger = visit.host.line.tries, visit.host.line, visit.host.ledger
    marks = frame.attempts + (f"@{tries}" if tries else "")
    if marks:
        if visit.paid is None:
            visit.paid = {unmarked(id) for id in (*line.effects, *ledger.pending)}
        if frame.follows and first in visit.paid:
            return  # the cost of the remembered operation before it, as an earlier attempt recorded it
    if visit.paid is not None:
        visit.paid.add(first)
    data = msgspec.Raw(encode(usage, "spend")) if usage else msgspec.Raw(b"{}")
    ledger.pend(
        Effect(first + marks, visit.host.clock.now(), "spent", visit.step.agent, data=data, usd=micros, tokens=total)
    )
    if usage:
        ledger.watch.used(frame.span, usage)


def _usage(model: str | None, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Return which model was used and how much of it; empty if neither is given."""
    if model is not None and not isinstance(model, str):
        raise ValueError(f"model must be a string, the name of a language model, not {model!r}.")
    for name, count in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
        if not is_count(count):
            raise ValueError(f"{name} must be a whole number, 0 or more, not {count!r}.")
    counts = {"input_tokens": int(input_tokens), "output_tokens": int(output_tokens)}
    if model is None:
        return counts if input_tokens or output_tokens else {}
    return {"model": model, **counts}


def unmarked(id: str) -> str:
    """Return the id of a spending without the attempts in which it was made.

    >>> unmarked("/ask~1#1/spend:10:0#1!1.2@3"), unmarked("/emit:told~1#2")
    ('/ask~1#1/spend:10:0#1', '/emit:told~1#2')
    """
    return _ATTEMPTS.sub("", id)
