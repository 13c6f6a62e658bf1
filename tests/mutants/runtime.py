"""Mutants of the runtime and of the log: replay, key frames, retries, waits, pauses, budgets and time-outs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RUNTIME = (
    Mutant(
        "attempts-carried-over", "log",
        "self.attempts, self.touched, self.tries = 0, False, 0", "self.touched, self.tries = False, 0",
        "The next step starts with the failed attempts of the step before.",
        ("tests/log/test_replay.py", "tests/runtime/test_retry.py"),
    ),
    Mutant(
        "key-frame-forgets-visit", "log",
        "journal=self.journal(),", "journal=None,",
        "A key frame loses what the open visit remembers, so operations run again.",
        ("tests/log/test_replay.py", "tests/engine/test_rewind.py"),
    ),
    Mutant(
        "key-frame-in-a-visit", "log",
        'line.records_since_key >= KEY_FRAME_EVERY and kind == "checkpoint" and',
        "line.records_since_key >= KEY_FRAME_EVERY and",
        "A key frame is written in the middle of a visit, whose idempotency keys change then.",
        ("tests/runtime/test_operations.py",), "key",
    ),
    Mutant(
        "idempotency-key-changes", "log",
        "self.key_frame = self.line.opened = self.line.base = self.seq", "self.key_frame = self.line.base = self.seq",
        "After a crash behind a key frame, an outside service gets another idempotency key.",
        ("tests/engine/test_rewind.py",), "key",
    ),
    Mutant(
        "chain-broken-by-withdrawal", "log",
        "self.parking, self.seq, self.digest = False, base, digest", "self.parking, self.seq = False, base",
        "After a pause that was withdrawn at the last moment, the next record does not fit the chain of digests.",
        ("tests/log/test_ledger.py", "tests/runtime/test_pause_in_steps.py"),
    ),
    Mutant(
        "commit-is-no-progress", "log",
        "and not body.moved and body.type != COMMITTED", "and not body.moved",
        "A long step that stores its progress is paused after a few kills.",
        ("tests/runtime/test_commit.py",),
    ),
    Mutant(
        "window-too-long", "log",
        "[len(found) - count :]", "[-count:]",
        "A step that reads the last items of a list gets more of them.",
        ("tests/log/test_state.py",), "window or items",
    ),
    Mutant(
        "frozen-too-long", "log",
        "(shift if passed < 0 else min(shift, passed))", "shift",
        "A timer that began during a freezing pause ends too late.",
        ("tests/runtime/test_wait_races.py",), "frozen",
    ),
    Mutant(
        "double-receipt", "runtime",
        'if signal.kind == "message" and signal.n not in self.visit.taken:', 'if signal.kind == "message":',
        "Two branches of a step receive the same message.",
        ("tests/runtime/test_messages.py",), "branches",
    ),
    Mutant(
        "message-taken-under-pause", "runtime",
        "if (message is not None or over) and self.host.must_stop:", "if over and self.host.must_stop:",
        "A step takes a message although the session is pausing.",
        ("tests/runtime/test_pause_at_waits.py",),
    ),
    Mutant(
        "loser-stays-open", "runtime",
        "each.rivals = tuple(other for other in pending.values() if other is not each)", "each.rivals = ()",
        "A question that has lost a race stays open, and people answer it in vain.",
        ("tests/runtime/test_first.py",), "loses or closed or answer",
    ),
    Mutant(
        "race-by-position", "runtime",
        "sorted(pending.items(), key=lambda item: item[1].rank)", "list(pending.items())",
        "If several waits of a race are over, a timer wins against an answer, which is lost.",
        ("tests/runtime/test_first.py",),
    ),
    Mutant(
        "failures-in-order-of-time", "runtime",
        "self.failed[index] for index in sorted(self.failed)}", "self.failed[index] for index in self.failed}",
        "The first error of a map depends on which item failed first.",
        ("tests/runtime/test_fanout.py", "tests/runtime/test_races.py"), "map or item or fail",
    ),
    Mutant(
        "no-safe-point-inside", "runtime",
        "host.must_stop and (self.pauses_inside or host.keeps_step)", "host.must_stop and host.keeps_step",
        "A pause takes effect only at the end of a step, not before its next operation.",
        ("tests/runtime/test_pause_in_steps.py",),
    ),
    Mutant(
        "key-with-other-input", "runtime",
        "if operation.keyed and found.input and operation.input and found.input != operation.input:",
        "if operation.keyed and found.input and not operation.input:",
        "An operation returns the result that its key has for other input.",
        ("tests/runtime/test_operations.py", "tests/engine/test_edit.py"), "key or input",
    ),
    Mutant(
        "visits-share-keys", "runtime",
        'f"{self.host.session_id}|{self.host.line.opened}|{scope}"', 'f"{self.host.session_id}|{scope}"',
        "Two visits of a step use the same idempotency key, so the second payment is dropped.",
        ("tests/runtime/test_operations.py", "tests/engine/test_rewind.py"), "key",
    ),
    Mutant(
        "one-crash-more", "runtime",
        "if held.row.crashes >= CRASHES_ALLOWED and", "if held.row.crashes > CRASHES_ALLOWED and",
        "A session whose processes die is paused one crash too late.",
        ("tests/runtime/test_commit.py",), "kills",
    ),
    Mutant(
        "in-flight-not-counted", "runtime",
        "Spending(usd, tokens, in_flight - asking)", "Spending(usd, tokens, 0)",
        "A map starts more operations than its budget allows.",
        ("tests/runtime/test_budget_kinds.py",),
    ),
    Mutant(
        "attempt-counts-twice", "runtime",
        "await back_off(visit, run.frame, run.operation.id, asking=1)",
        "await back_off(visit, run.frame, run.operation.id)",
        "A retry counts as two operations, so a budget is reached too early.",
        ("tests/runtime/test_budget_kinds.py", "tests/runtime/test_operation_retry.py"), "attempt or budget",
    ),
    Mutant(
        "paid-twice-by-retry", "runtime",
        "if frame.follows and first in visit.paid:", "if first in visit.paid:",
        "The second attempt of an operation spends money that nobody counts.",
        ("tests/runtime/test_budget.py", "tests/runtime/test_operation_retry.py"), "attempt or paid",
    ),
    Mutant(
        "retry-of-a-refused-write", "runtime",
        "if delay is None or isinstance(error, WriteRefused | LentValueChanged):", "if delay is None:",
        "A step that writes what it may not is repeated although no attempt can succeed.",
        ("tests/runtime/test_scope.py", "tests/runtime/test_steps.py", "tests/runtime/test_retry.py"),
    ),
    Mutant(
        "pause-waits-for-retries", "runtime",
        "await self._rest(delay)\n        return not self.must_stop", "await self._rest(delay)\n        return True",
        "A step that waits for its next attempt begins it although the session is paused.",
        ("tests/runtime/test_retry.py",), "pause",
    ),
    Mutant(
        "attempt-at-shutdown", "runtime",
        "if left > 0 or host.stopping:", "if left > 0:",
        "An engine that shuts down begins a further attempt.",
        ("tests/runtime/test_operation_retry.py",), "closes",
    ),
    Mutant(
        "one-above-the-rate", "runtime",
        "if len(self.starts) < self.count:", "if len(self.starts) <= self.count:",
        "A map starts one call more than its rate allows.",
        ("tests/runtime/test_rate.py",),
    ),
    Mutant(
        "inner-timeout-wins", "runtime",
        "<= frame.cancelling and not frame.is_inside_expired", "<= frame.cancelling",
        "If an operation and one inside it expire at once, the inner one is retried.",
        ("tests/runtime/test_operation_timeout.py",), "expire",
    ),
    Mutant(
        "overtaken-drive-continues", "runtime",
        "if fence > held.row.fence:", "if fence > held.row.fence + 1:",
        "A step begins an operation although another engine has taken its session over.",
        ("tests/runtime/test_taken_over.py",),
    ),
    Mutant(
        "pause-lost-at-parking", "runtime",
        'facts["only_if_paused"] = True', 'facts["only_if_paused"] = False',
        "A pause that is withdrawn at the last moment still parks the session.",
        ("tests/runtime/test_pause_in_steps.py", "tests/engine/test_pause.py"),
    ),
    Mutant(
        "pause-missed-at-the-budget", "runtime",
        "            if not await self._until_it_may_start(frame):  # a request may have arrived meanwhile\n"
        "                break  # after a wait, the budget may be another one\n",
        "            break\n",
        "An operation begins although a pause has arrived while the budget was read.",
        ("tests/runtime/test_pause_in_steps.py",), "look_at_the_budget",
    ),
    Mutant(
        "lower-budget-missed-after-a-halt", "runtime",
        "            if not await self._until_it_may_start(frame):  # a request may have arrived meanwhile\n"
        "                break  # after a wait, the budget may be another one\n",
        "            await self._until_it_may_start(frame)\n            break\n",
        "An operation that a pause has halted begins although the resume has lowered the budget.",
        ("tests/runtime/test_pause_in_steps.py",), "look_at_the_budget",
    ),
    Mutant(
        "pause-missed-before-an-attempt", "runtime",
        "if host.must_stop == stops:\n            return None  #", "return None  #",
        "A further attempt begins although a pause has arrived while the budget was read.",
        ("tests/runtime/test_pause_in_steps.py",), "look_at_the_budget",
    ),
    Mutant(
        "budget-missed-in-place", "runtime",
        "held.budgeted = None if row.may_have_budget else False\n        await self._note_resumed_in_place()",
        "await self._note_resumed_in_place()",
        "A step that continues in place spends more than the budget of its resume.",
        ("tests/runtime/test_hold_races.py",), "budget",
    ),
    Mutant(
        "older-fence-noticed", "runtime",
        "if fence < held.row.fence:", "if fence < 0:",
        "A request that was read before the session was claimed again aborts the step after it.",
        ("tests/runtime/test_hold_races.py",), "read_before",
    ),
)  # fmt: skip
