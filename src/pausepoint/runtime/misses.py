"""The remembered operations that a run of a step has not asked for.

A call without a key is recognised by its arguments. If they differ after a restart, the call is another operation and
runs, although a result of it is remembered: a *miss*. The log says which call of a function an operation was, so the
miss is noticed before the call runs. What is left when the step ends was remembered for nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from pausepoint.log.replay import ASKING, OperationBody, is_inside, spent_on

if TYPE_CHECKING:
    from pausepoint.runtime.frames import Frame
    from pausepoint.runtime.visit import Operation, Visit

ACCEPT = "session.resume(code='accept')"
"""What runs a call of a strict step although its arguments differ."""

WAYS = f"make the arguments the same again, then resume; or run it again: {ACCEPT}"

TURNS = 5
"""The number of loop turns in which another branch may ask for a result that seems to be replaced."""

TIMERS = ("sleep", "until")
"""The operations whose results nobody misses."""

FEW = 100
"""How many ids an event lists."""


class Misses:
    """Tells which remembered operations of a visit other calls replace, and which are left over."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.before = frozenset(visit.host.line.operations)
        self.unclaimed = set(self.before)
        self._calls: dict[tuple[str, str, int], list[str]] | None = None

    async def check(self, frame: Frame, operations: Sequence[Operation]) -> None:
        """Say that operations, which are about to run, have a result that was remembered for other arguments.

        A strict step pauses instead.
        """
        visit = self.visit
        for _ in range(TURNS):
            if not self._replaced(operations):
                return
            await visit.uninterrupted(asyncio.sleep(0))
        pairs = self._replaced(operations)
        if not pairs:
            return
        lost_ids = [lost.id for _, lost in pairs]
        differing = _differing(pairs)
        calls, why = _calls(pairs), f"{_differs(differing)}{self._cost(lost_ids)}"
        if visit.is_strict:
            reason = f"step {visit.step.name!r}: {calls} would run again: {why}."
            await visit.refuse(frame, "mismatch", f"{reason} What to do: {WAYS}.")
        self.unclaimed.difference_update(lost_ids)
        summary = f"{calls} {'runs' if len(pairs) == 1 else 'run'} again: {why}"
        data = {
            "id": pairs[0][0].id, "operation": pairs[0][0].name, "count": len(pairs), "arguments": differing,
            "unused": lost_ids[:FEW], "usd": self._usd(lost_ids),
        }  # fmt: skip
        await visit.uninterrupted(visit.host.note("operation.missed", summary, data, agent=visit.step.agent))

    def _replaced(self, operations: Sequence[Operation]) -> list[tuple[Operation, OperationBody]]:
        """Return the operations that other ones were before, with those."""
        if not self.unclaimed:
            return []
        return [(operation, lost) for operation in operations if (lost := self._replaced_by(operation)) is not None]

    def _replaced_by(self, operation: Operation) -> OperationBody | None:
        """Return the operation that was the same call of the function before, with other arguments."""
        if not operation.nth:
            return None
        if self._calls is None:
            self._calls = defaultdict(list)
            for id, body in self.visit.host.line.operations.items():
                if body.nth:
                    self._calls[*_place(id), body.nth].append(id)
        for id in reversed(self._calls.get((*_place(operation.id), operation.nth), ())):
            if id in self.unclaimed:
                return self.visit.host.line.operations.get(id)
        return None

    def note_unused(self) -> None:
        """At the end of the step, record the results that no call of this run has asked for."""
        left: dict[str, list[str]] = defaultdict(list)
        for id, body in self.visit.host.line.operations.items():
            if id in self.unclaimed and not body.total and body.name not in TIMERS and not is_inside(id, self.before):
                # One inside another that is remembered is not asked for.
                left[body.name].append(id)
        ledger, agent = self.visit.host.ledger, self.visit.step.agent
        for name, ids in left.items():
            results = "an answer" if name in ASKING else "a remembered result"
            if len(ids) > 1:
                results = f"{len(ids):,} {'answers' if name in ASKING else 'remembered results'}"
            verb = "was" if len(ids) == 1 else "were"
            summary = f"{results} of {name} {verb} not used: the step no longer makes this call{self._cost(ids)}"
            data = {"operation": name, "count": len(ids), "unused": ids[:FEW], "usd": self._usd(ids)}
            ledger.effect(f"miss:{ids[0]}:{self.visit.run}", "operation.unused", summary, data, agent)

    def _usd(self, ids: Collection[str]) -> float:
        return spent_on(self.visit.host.line, ids) / 1e6

    def _cost(self, ids: Sequence[str]) -> str:
        """Return what the results took and cost that are not used, as the end of a sentence; empty if it is nothing."""
        operations = self.visit.host.line.operations
        seconds = sum(operations[id].took for id in ids) / 1e6
        usd = self._usd(ids)
        parts = [f"took {seconds:.1f} s"] * (seconds >= 0.1) + [f"cost ${usd:.4g}"] * (usd > 0)
        return f" ({'it' if len(ids) == 1 else 'they'} {' and '.join(parts)})" if parts else ""


def _place(id: str) -> tuple[str, str]:
    """Return the function in its scope and the branch, from the id of an operation without a key.

    >>> _place("/outer~12#1/look_up~ab@9f#2")
    ('/outer~12#1/look_up', '9f')
    """
    prefix, _, rest = id.rpartition("~")
    return prefix, rest.partition("@")[2].partition("#")[0]


def _calls(pairs: Sequence[tuple[Operation, OperationBody]]) -> str:
    name = pairs[0][0].name
    return name if len(pairs) == 1 else f"{len(pairs):,} items of {name}"


def _differs(names: Sequence[str]) -> str:
    if not names:
        return "other arguments than those of the remembered call"
    quoted = " and ".join(map(repr, names))
    return f"{quoted} {'differs' if len(names) == 1 else 'differ'} from the remembered call"


def _differing(pairs: Sequence[tuple[Operation, OperationBody]]) -> list[str]:
    """Return the names of the arguments that differ in any of the calls, as far as the log tells."""
    names: dict[str, None] = {}
    for operation, lost in pairs:
        now, before = dict(_digests(operation.digests)), dict(_digests(lost.digests))
        names |= dict.fromkeys(name for name in {**before, **now} if now.get(name) != before.get(name))
    return list(names)


def _digests(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, text.split(",")):
        name, _, digest = part.partition("=")
        yield name, digest


def mismatch(step: str, operation: Operation) -> str:
    """Return the reason for a pause: a key was used again with different input."""
    return (
        f"step {step!r}: operation {operation.id} is remembered with different input; use another key= for different"
        " input, rewind the step, or resume once the input is the same again"
    )
