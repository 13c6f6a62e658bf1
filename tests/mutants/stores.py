"""Mutants of the stores: fences, digests, pauses, leases, due times, removal and transactions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MEMORY = ("tests/stores/test_suite.py::TestSqliteInMemory",)
FILE = ("tests/stores/test_suite.py::TestSqliteOnAFile",)
WRITER = ("tests/stores/test_writer.py",)
POSTGRES = ("tests/stores/test_postgres.py::TestPostgres",)

STORES = (
    Mutant(
        "old-fence-commits", "stores/sql",
        "and place[2] == commit.fence", "and place[2] >= commit.fence",
        "An engine that has lost a session still writes to it.",
        MEMORY, "commit or claim",
    ),
    Mutant(
        "commit-over-newer-record", "stores/sql",
        "place[1] == commit.base_seq", "place[1] >= commit.base_seq",
        "A commit is accepted although the log has moved on since.",
        MEMORY, "commit",
    ),
    Mutant(
        "claim-with-old-fence", "stores/sql",
        "if fence is not None and row.fence != fence:", "if fence is not None and row.fence < fence:",
        "A claim succeeds although another engine has driven the session since it was seen.",
        ("tests/engine/test_take_up.py",),
    ),
    Mutant(
        "steal-unasked", "stores/sql",
        "if row.live and not steal:", "if row.live and not steal and fence is None:",
        "A claim with a fence takes a session from the engine that drives it.",
        ("tests/engine/test_take_up.py",),
    ),
    Mutant(
        "abort-not-raised", "stores/sql",
        "if asked and not raised and not freezes:", "if asked and not freezes:",
        "A pause that aborts has no effect on a session that is already pausing.",
        MEMORY, "abort",
    ),
    Mutant(
        "paused-session-claimed", "stores/sql",
        "if not paused and (row.pause_requested or", "if not paused and not steal and (row.pause_requested or",
        "A claim that steals drives a paused session.",
        MEMORY, "paused",
    ),
    Mutant(
        "closed-pause-unverified", "stores/sql",
        "if opened_sum != sums.opened(key, pause) or not right:", "if opened_sum != sums.opened(key, pause):",
        "A damaged end of a pause is shown as if someone had resumed the session.",
        ("tests/engine/test_verify.py",), "damaged",
    ),
    Mutant(
        "cancelled-keeps-pauses", "stores/sql",
        'if commit.ended in ("completed", "cancelled"):\n        connection.execute(connection.queries["close_all',
        'if commit.ended == "completed":\n        connection.execute(connection.queries["close_all',
        "The pauses of a cancelled session stay open.",
        MEMORY, "pauses or cancel",
    ),
    Mutant(
        "everything-softened", "stores/sql",
        'mode = "abort" if "abort" in (standing.mode, pause.mode) else "finish"', "mode = pause.mode",
        "A second pause of everything takes back that the first one aborts.",
        MEMORY, "second_pause",
    ),
    Mutant(
        "damage-prevents-pause", "stores/sql",
        "with suppress(DamagedRecord):  # damage must not", "with suppress():  # damage must not",
        "Nothing can be paused at once while the row of an earlier pause of everything is damaged.",
        ("tests/engine/test_standing_pause.py",), "replaced",
    ),
    Mutant(
        "damaged-child-not-cancelled", "stores/sql",
        'sessions.flag_damaged(connection, "request_cancel", key)', "pass",
        "A cancelled session leaves a damaged child running.",
        ("tests/engine/test_damage.py",), "cancelled",
    ),
    Mutant(
        "exempt-stopped-again", "stores/sql",
        ".get >= everything >> 1:", ".get > everything >> 1:",
        "A session that was resumed under the pause of everything stops at its next commit.",
        MEMORY, "resumed",
    ),
    Mutant(
        "kept-session-taken", "stores/sql",
        "stuck = row.live or row.kept_by is not None or row.open_pauses", "stuck = row.live or row.open_pauses",
        "A worker takes a session whose step another engine keeps in memory.",
        ("tests/runtime/test_hold.py", "tests/runtime/test_hold_races.py", *FILE), "kept or held or taken or keeper",
    ),
    Mutant(
        "child-operations-free", "stores/sql",
        "spent = commit.spend_usd, commit.spend_tokens, commit.spend_operations",
        "spent = commit.spend_usd, commit.spend_tokens, 0",
        "The operations of a child do not count for the budget of its parent.",
        MEMORY, "spending or purse",
    ),
    Mutant(
        "key-used-after-answer", "stores/sql",
        "if kept is None or kept.holder != engine.number or kept.answer is not None:",
        "if kept is None or kept.holder != engine.number:",
        "A request that was answered takes effect a second time.",
        MEMORY, "key or request",
    ),
    Mutant(
        "driven-child-removed", "stores/sql",
        "if doomed.holder is not None and engine.present.alive(doomed.holder):",
        "if doomed.session_id == session_id and doomed.holder is not None and engine.present.alive(doomed.holder):",
        "A removal deletes a child while an engine drives it.",
        MEMORY, "removed",
    ),
    Mutant(
        "schedule-overwritten", "stores/sql",
        "if get(connection, after.name) != before:", "if before is None and get(connection, after.name) is not None:",
        "Two engines start the same run of a schedule.",
        MEMORY, "schedule",
    ),
    Mutant(
        "mail-missed-while-parking", "stores/sqlite",
        ") THEN 0 ELSE ?2 END\nWHERE key = ?3", ") THEN ?2 ELSE ?2 END\nWHERE key = ?3",
        "A message that arrives while a session parks does not wake it.",
        MEMORY, "mail",
    ),
    Mutant(
        "crash-not-counted", "stores/sqlite",
        "UPDATE sessions SET holder = NULL, crashes = crashes + 1,", "UPDATE sessions SET holder = NULL,",
        "A step that kills its process every time is repeated forever.",
        FILE, "crash or died",
    ),
    Mutant(
        "due-a-moment-late", "stores/sqlite",
        "AND (wakes_at <= :now OR wakes_at = 0)", "AND (wakes_at < :now OR wakes_at = 0)",
        "A session is not due at the very time that its timer names.",
        MEMORY, "due or wake",
    ),
    Mutant(
        "parked-under-everything-sleeps", "stores/sqlite",
        "wakes_at = ifnull(?2, iif({stopped}, 0, NULL)) WHERE key = ?3", "wakes_at = ?2 WHERE key = ?3",
        "A session that parked under the pause of everything does not resume when that is lifted.",
        (*MEMORY, "tests/engine/test_standing_pause.py"), "lifted or lifting or parks or everything",
    ),
    Mutant(
        "lift-dated-again", "stores/sqlite",
        "SET lifted_at = ?, lifted_by = ? WHERE lifted_at IS NULL", "SET lifted_at = ?, lifted_by = ?",
        "A lift changes the times of earlier pauses of everything.",
        MEMORY, "everything or lift or frozen",
    ),
    Mutant(
        "shared-value-deleted", "stores/sqlite",
        "DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM names WHERE names.hash = ?1)",
        "DELETE FROM blobs WHERE hash = ?1",
        "A redaction deletes a large value that another session still needs.",
        ("tests/engine/test_redaction.py", *MEMORY), "redact or value",
    ),
    Mutant(
        "moves-out-of-order", "stores/sqlite",
        "if several or _counts(commit):", "if _counts(commit):",
        "Of several commits of one session in one transaction, an earlier one ends up as the last.",
        FILE, "commits",
    ),
    Mutant(
        "refusal-leaves-writes", "stores/sqlite",
        "if connection.total_changes() != before:", "if connection.total_changes() < before:",
        "A verb that is refused after its first write leaves that write behind.",
        WRITER, "refusal",
    ),
    Mutant(
        "failed-commit-acknowledged", "stores/sqlite",
        "return found is not None and found[0] == trace.expected", "return found is not None",
        "A transaction that the disk refused is reported as stored.",
        WRITER,
    ),
    Mutant(
        "older-hold-given-back", "stores/sqlite",
        "self.lost[key] = max(fence, self.lost.get(key, 0))", "self.lost[key] = fence",
        "After a full disk, a session stays held although no engine drives it.",
        ("tests/stores/test_trouble.py",), "hold",
    ),
    Mutant(
        "foreign-lock-ignored", "stores",
        "return number in self._file.numbers or _locked_elsewhere(self._file.descriptor, number)",
        "return number in self._file.numbers",
        "The engines of other processes count as dead, and their sessions are driven twice.",
        ("tests/stores/test_liveness.py",),
    ),
    Mutant(
        "postgres-old-fence-commits", "stores/postgres",
        "WHERE key = ?1 AND fence = ?2 AND seq = ?3", "WHERE key = ?1 AND fence >= ?2 AND seq = ?3",
        "In Postgres, an engine that has lost a session still writes to it.",
        POSTGRES, "plain",
    ),
    Mutant(
        "postgres-exempt-stopped", "stores/postgres",
        "if everything is not None and exempt < everything >> 1:",
        "if everything is not None and exempt <= everything >> 1:",
        "In Postgres, a session that was resumed under the pause of everything stops at its next commit.",
        POSTGRES, "resumed",
    ),
    Mutant(
        "postgres-beat-after-lease", "stores/postgres",
        "if before >= lease.until:", "if before >= lease.until + LEASE:",
        "An engine that was stopped for longer than its lease continues as if it had kept it.",
        ("tests/stores/test_postgres_lease.py",), "ended or beat",
    ),
    Mutant(
        "postgres-lease-too-long", "stores/postgres",
        "self._lease = Lease(lease.number, before + LEASE)", "self._lease = Lease(lease.number, boot_time() + LEASE)",
        "After a slow beat, an engine believes in its lease for longer than the database does.",
        ("tests/stores/test_postgres_lease.py",), "ended or beat",
    ),
)  # fmt: skip
