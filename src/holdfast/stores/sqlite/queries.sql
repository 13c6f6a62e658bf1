-- Every statement that the verbs use, by name. `sql.py` loads them.

-- name: facts
-- The facts about sessions, in the order of model.SessionRow; callers add a WHERE.
SELECT
    key, session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
    seq, key_frame, digest, step, visit, leaving, ended, failure,
    pause_requested, pause_mode, cancel_requested, holder, fence, waiting, wakes_at,
    crashes, spent_usd, spent_tokens, budget_usd,
    (SELECT count(*) FROM pauses WHERE session = key AND closed_at IS NULL),
    progress
FROM sessions

-- name: move
-- A session moves forward, if it still stands where the driver thinks and the driver still holds it.
-- Sets no indexed column: a release is a statement of its own.
UPDATE sessions SET
    seq = ?, key_frame = ?, digest = coalesce(?, digest), updated_at = max(updated_at, ?),
    step = ?, visit = ?, leaving = ?, ended = ?, failure = ?, crashes = crashes * ?,
    spent_usd = spent_usd + ?, spent_tokens = spent_tokens + ?, progress = ?,
    version = coalesce(?, version)
WHERE key = ? AND seq = ? AND fence = ? AND holder = ? AND (NOT ? OR pause_requested)
RETURNING key, seq, fence, pause_requested, pause_mode, cancel_requested

-- name: position
-- What `move` looked at, to say why it did not fit.
SELECT session_id, seq, fence, holder, pause_requested FROM sessions WHERE key = ?

-- name: append
INSERT INTO log (session, seq, parent, kind, step, visit, at, payload, salt, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: release
UPDATE sessions SET holder = NULL WHERE key = ?

-- name: release_all
UPDATE sessions SET holder = NULL WHERE holder = ?

-- name: keep_blob
INSERT INTO blobs (hash, data) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING

-- name: open_pause
INSERT INTO pauses (session, id, kind, reason, "by", at, step, mode, closed_at, closed_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: close_pause
UPDATE pauses SET closed_at = ?, closed_by = ? WHERE session = ? AND id = ? AND closed_at IS NULL

-- name: close_all_pauses
UPDATE pauses SET closed_at = ?, closed_by = ? WHERE session = ? AND closed_at IS NULL

-- name: create
INSERT INTO sessions (
    session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
    seq, key_frame, digest, step, visit, holder, fence, budget_usd, signals_digest
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id) DO NOTHING
RETURNING key

-- name: claim
-- A failed session can go on: it is no longer at its end. Its failure stays until a commit.
UPDATE sessions SET holder = ?, fence = fence + 1, crashes = crashes + ?, ended = NULL WHERE key = ?

-- name: operator_pauses
SELECT count(*) FROM pauses WHERE session = ? AND closed_at IS NULL AND kind = 'operator'

-- name: raise_pauses
UPDATE pauses SET mode = 'abort' WHERE session = ? AND closed_at IS NULL AND kind = 'operator'

-- name: withdraw_pauses
UPDATE pauses SET closed_at = ?, closed_by = ? WHERE session = ? AND closed_at IS NULL AND kind = 'operator'

-- name: request_pause
UPDATE sessions SET pause_requested = 1, pause_mode = ? WHERE key = ?

-- name: withdraw_request
UPDATE sessions SET pause_requested = 0, pause_mode = 'finish' WHERE key = ?

-- name: set_budget
UPDATE sessions SET budget_usd = ? WHERE key = ?

-- name: request_cancel
UPDATE sessions SET cancel_requested = 1 WHERE key = ?

-- name: signals_head
SELECT session_id, seq, signals_n, signals_digest FROM sessions WHERE key = ?

-- name: append_signal
INSERT INTO signals (session, n, after, kind, "by", at, payload, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: move_signals
UPDATE sessions SET signals_n = ?, signals_digest = ? WHERE key = ?

-- name: log_head
SELECT session_id, seq, digest FROM sessions WHERE key = ?

-- name: records
SELECT seq, parent, kind, step, visit, at, payload, salt, body, digest
FROM log WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq

-- name: record_digest
SELECT digest FROM log WHERE session = ? AND seq = ?

-- name: signals
SELECT n, after, kind, "by", at, payload, digest FROM signals WHERE session = ? AND n >= ? ORDER BY n

-- name: blob
SELECT data FROM blobs WHERE hash = ?

-- name: flags
SELECT key, fence, pause_requested, pause_mode, cancel_requested
FROM sessions WHERE key IN (SELECT value FROM json_each(?))

-- name: pauses
SELECT id, kind, reason, "by", at, step, mode, closed_at, closed_by
FROM pauses WHERE session = ? AND (closed_at IS NULL OR NOT ?) ORDER BY n

-- name: pause_flag
SELECT pause_requested, pause_mode, updated_at FROM sessions WHERE key = ?

-- name: register
INSERT INTO engines (pid, host, started_at) VALUES (?, ?, ?) RETURNING id

-- name: forget_engine
DELETE FROM engines WHERE id = ?

-- name: unheld_engines
-- Engines that hold no session; the dead among them can be forgotten.
SELECT id FROM engines WHERE id NOT IN (SELECT holder FROM sessions WHERE holder IS NOT NULL)

-- name: engine
SELECT pid, host, started_at FROM engines WHERE id = ?

-- name: leave_mark
UPDATE engines SET mark = ? WHERE id = ?

-- name: mark
SELECT mark FROM engines WHERE id = ?

-- name: data_version
PRAGMA data_version
