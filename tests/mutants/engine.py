"""Mutants of the engine and the gate: owners, one effect per request, time travel, redaction, schedules and hooks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ENGINE = (
    Mutant(
        "owners-by-small-letters", "model",
        "session_id.owner != owner:", "session_id.owner.casefold() != owner.casefold():",
        "A person resumes the session of another owner, whose name differs in capital letters.",
        ("tests/engine/test_owner.py",),
    ),
    Mutant(
        "start-pauses-foreign-session", "engine",
        "check_owner(row, new.owner)", "check_owner(row, row.owner)",
        "A start with `paused` stops the session of another owner.",
        ("tests/engine/test_owner.py",),
    ),
    Mutant(
        "other-input-accepted", "engine",
        "(row.workflow, row.input_digest) != (new.workflow, new.input_digest)", "row.workflow != new.workflow",
        "A start with the id of another order returns the result of that order.",
        ("tests/engine/test_start.py",), "known_id",
    ),
    Mutant(
        "fence-of-the-caller-ignored", "engine",
        "seen = row.fence if fence is None else fence", "seen = row.fence",
        "A worker drives a session although another one has driven it since it looked.",
        ("tests/engine/test_take_up.py",),
    ),
    Mutant(
        "wake-without-fence", "engine",
        "return await self.take_over(workflow, row, past, fence=row.fence)",
        "return await self.take_over(workflow, row, past)",
        "An engine that comes too late runs a session again that has failed since.",
        ("tests/runtime/test_wait_races.py",), "too_late",
    ),
    Mutant(
        "own-pause-lifted", "engine",
        "if row.under_everything and not row.own_pause]", "if row.under_everything]",
        "Lifting the pause of everything reports sessions that stay paused as resumed.",
        ("tests/engine/test_standing_pause.py",), "lifting or damaged",
    ),
    Mutant(
        "edit-of-a-newer-state", "engine",
        "if based_on not in (None, row.seq):", "if based_on is not None and based_on > row.seq:",
        "An edit overwrites what has changed since its author read the state.",
        ("tests/engine/test_edit.py", "tests/engine/test_rewind_edits.py"), "based or moved",
    ),
    Mutant(
        "edit-of-frozen-field", "engine",
        "if place.frozen and frozen:", "if place.frozen and not frozen:",
        "An edit changes a field that the model declares as frozen.",
        ("tests/engine/test_edit.py",), "forbids",
    ),
    Mutant(
        "rewind-keeps-questions", "engine",
        'thaw=True, settles=True, cancel_children=f"{row.session_id} was rewound"',
        'thaw=True, cancel_children=f"{row.session_id} was rewound"',
        "Questions of a visit that was rewound stay open.",
        ("tests/questions/test_verbs.py", "tests/questions/test_questions.py"),
    ),
    Mutant(
        "rewind-hides-one-more", "engine",
        "(*line.left_behind, (found.base + 1, row.seq))", "(*line.left_behind, (found.base, row.seq))",
        "A rewind hides the last record that still counts.",
        ("tests/engine/test_rewind.py", "tests/engine/test_time_travel.py"),
    ),
    Mutant(
        "redaction-deletes-present-value", "engine",
        "return tuple(sorted(self.gone - self.kept))", "return tuple(sorted(self.gone))",
        "A redaction of one record deletes a large value that the present state uses.",
        ("tests/engine/test_redaction.py",),
    ),
    Mutant(
        "redaction-misses-operations", "engine",
        'goes = goes or record.kind in ("operation", "wait") or _remembers(body)', "goes = goes or _remembers(body)",
        "A redacted field stays readable in the operations that produced it.",
        ("tests/engine/test_redaction.py",), "remembered or gone",
    ),
    Mutant(
        "redaction-stops-at-migration", "engine",
        "found = {body.moved.get(name, name) for name in names}", "found = set(names)",
        "A redacted field stays readable under the name that it had before a migration.",
        ("tests/engine/test_redaction.py",), "migration or name",
    ),
    Mutant(
        "forged-value-imported", "engine",
        "if sha256(data).hexdigest() != key:", "if len(key) != 64:",
        "An import stores a large value under the hash of another one.",
        ("tests/engine/test_transfer.py",), "right",
    ),
    Mutant(
        "mail-lost-by-export", "engine",
        '({"unread": True} if signal.n in each.mail else {})',
        '({"unread": True} if signal.n in each.mail[:1] else {})',
        "An export forgets that messages after the first were not received yet.",
        ("tests/engine/test_transfer.py",),
    ),
    Mutant(
        "stranger-in-the-tree", "engine",
        "if known and parent not in known:", "if known and parent is None:",
        "An import accepts a session that is no child of the others in the file.",
        ("tests/engine/test_transfer.py",), "tree or called",
    ),
    Mutant(
        "missed-runs-one-by-one", "engine",
        'at if due.catch_up == "all" and not skip else now', 'at if due.catch_up == "all" else now',
        "A schedule skips missed runs one by one while its session runs.",
        ("tests/engine/test_schedules.py",), "skipped or missed or caught",
    ),
    Mutant(
        "two-triggers-one-session", "engine",
        "at = max(now, (each.last_at or 0) + 1)", "at = max(now, each.last_at or 0)",
        "Of two triggers at one time, the second starts nothing.",
        ("tests/engine/test_schedules.py",), "trigger",
    ),
    Mutant(
        "run-at-its-time-missed", "engine",
        "reverse=True) if at <= now)", "reverse=True) if at < now)",
        "The run of this very moment counts as not due yet, and an older one is started.",
        ("tests/engine/test_schedules.py",), "newest or caught",
    ),
    Mutant(
        "waiting-run-dropped", "engine",
        'waited = each.overlap == "queue" and each.next_at <= each.paused_at', 'waited = each.overlap == "skip"',
        "A run that waited for its turn is dropped by a pause of its schedule.",
        ("tests/engine/test_schedules.py",), "waits or paused",
    ),
    Mutant(
        "parents-removed-first", "engine",
        "key=lambda removal: removal.key, reverse=True)", "key=lambda removal: removal.key)",
        "A removal that is interrupted leaves children without their parent.",
        ("tests/engine/test_retention.py",), "children",
    ),
    Mutant(
        "child-without-owner", "engine",
        "new, owner=parent.owner, tags=parent.tags,", "new, tags=parent.tags,",
        "Anyone may resume the child of a session that has an owner.",
        ("tests/runtime/test_children.py",), "final_state",
    ),
    Mutant(
        "withdrawn-call-counts", "gate",
        "        if call.ended.done() and not call.in_flight:\n            return  # its hook has gone meanwhile\n", "",
        "A tool call that its agent has given up counts as an operation.",
        ("tests/gate/test_guests.py",), "last_moment",
    ),
    Mutant(
        "withdrawn-call-runs", "gate",
        "if not call.in_flight and not call.ended.done():\n                call.in_flight",
        "if not call.in_flight:\n                call.in_flight",
        "A tool call that its agent has given up is let through.",
        ("tests/gate/test_guests.py",), "last_moment",
    ),
)  # fmt: skip
