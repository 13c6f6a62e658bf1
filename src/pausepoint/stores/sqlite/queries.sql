-- The statements of the store, by name. `sql.py` loads them. A part stands for its name in braces.

-- part: stopped
-- Whether the pause of everything stops a session.
(ended IS NULL AND exempt < ifnull((SELECT round FROM standing_pause), 0))

-- part: asked
(pause_requested OR {stopped})

-- part: mode
CASE WHEN {stopped} AND (SELECT mode FROM standing_pause) = 'abort' THEN 'abort' ELSE pause_mode END

-- part: last_lifted
-- The last round of a pause of everything that was lifted.
ifnull((SELECT max(round) FROM pause_rounds WHERE lifted_at IS NOT NULL), 0)

-- part: open
-- Whether a row of `pauses` is open. A record of a pause of everything that was lifted counts as closed.
(closed_at IS NULL AND (standing = 0 OR standing = (SELECT epoch FROM standing_pause)))

-- part: own_frozen
-- Since when a pause of the session's own freezes its timers.
(SELECT min(at) FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0 AND kind = 'operator' AND freeze)

-- part: noted
-- From when on a session was under the pause of everything of a row of `pause_rounds`, if it has a record of it.
(SELECT noted.at FROM pauses AS noted
    WHERE noted.session = key AND noted.standing = pause_rounds.epoch AND noted.closed_at IS NULL)

-- part: frozen
-- The frozen time, with that of lifted pauses of everything: `pausepoint.model.everything.frozen_by`.
frozen + iif(ended IS NULL AND exempt < {last_lifted}, ifnull((SELECT sum(max(until - since, 0)) FROM (
    SELECT min(max(lifted_at), ifnull({own_frozen}, max(lifted_at))) AS until,
        max(min(at), ifnull({noted}, min(at))) AS since
    FROM pause_rounds WHERE round > exempt AND lifted_at IS NOT NULL AND freeze GROUP BY epoch
)), 0), 0)

-- part: frozen_since
-- Since when the timers are frozen: `pausepoint.model.everything.frozen_since`.
(SELECT min(since) FROM (
    SELECT {own_frozen} AS since
    UNION ALL
    SELECT max(min(at), ifnull({noted}, min(at))) FROM pause_rounds
    WHERE round > exempt AND lifted_at IS NULL AND freeze AND ended IS NULL
))

-- part: ready
-- The value of `ready_at` once no engine holds the session, as `pausepoint.model.sessions.ready_at` defines it. The
-- store suite, the store model and `verify` check that both agree.
CASE
    WHEN pause_requested OR ended IS NOT NULL OR removing OR guest
        OR EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0) THEN NULL
    WHEN wakes_at IS NULL AND waiting IS NULL THEN 0
    ELSE wakes_at
END

-- part: mentions
-- Whether a session has the text where a person can see it. `lower` knows only the letters A to Z; `instr` has no
-- wildcards and, unlike LIKE, no limit. A failure that is not JSON is damaged, and matches nothing. Tags are looked up
-- only if their JSON has the text, and pauses are read once for all sessions.
(
    instr(lower(session_id), lower(:text)) OR instr(lower(owner), lower(:text))
    OR (instr(lower(tags), lower(:quoted)) AND EXISTS (
        SELECT 1 FROM tagged WHERE tagged.session = sessions.key AND instr(lower(tag), lower(:text))
    ))
    OR (failure IS NOT NULL AND json_valid(failure) AND (
        instr(lower(json_extract(failure, '$.message')), lower(:text))
        OR instr(lower(json_extract(failure, '$.type')), lower(:text))
    ))
    OR key IN (
        SELECT session FROM pauses INDEXED BY pauses_open WHERE {open} AND instr(lower(reason), lower(:text))
    )
    OR (EXISTS (SELECT 1 FROM standing_pause WHERE instr(lower(reason), lower(:text))) AND {stopped})
)

-- part: by_session_id
session_id = :session_id

-- part: by_prefix
-- A range, so that SQLite uses the index.
session_id BETWEEN :prefix AND :prefix || char(1114111)

-- part: by_workflow
workflow = :workflow

-- part: by_owner
owner = :owner

-- part: by_queue
queue = :queue

-- part: by_tag
-- For sessions that are found by something else.
EXISTS (SELECT 1 FROM tagged WHERE tag = :tag AND session = key)

-- part: tagged
-- Finds all sessions with a tag.
key IN (SELECT session FROM tagged WHERE tag = :tag)

-- part: by_parent
parent = :parent

-- part: by_input_digest
input_digest = :input_digest

-- part: by_ids
session_id IN (SELECT value FROM json_each(:ids))

-- part: by_since
updated_at >= :since

-- part: by_until
updated_at <= :until

-- part: by_text
{mentions}

-- part: paused
EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0)

-- part: own_pause
(pause_requested OR {paused})

-- part: status
-- The rules of `derive_status` in SQL, to count and filter sessions without reading each row. The store suite and the
-- store model check that both agree.
CASE
    WHEN ended = 'completed' THEN 'completed'
    WHEN ended = 'cancelled' THEN 'cancelled'
    WHEN {asked} OR {paused} THEN iif(holder IN (SELECT value FROM json_each(:alive)), 'pausing', 'paused')
    WHEN ended = 'failed' THEN 'failed'
    WHEN holder IN (SELECT value FROM json_each(:alive)) THEN 'running'
    WHEN wakes_at = 0 OR wakes_at <= :now THEN 'ready'
    WHEN waiting IS NOT NULL THEN 'waiting'
    WHEN wakes_at IS NOT NULL THEN 'sleeping'
    WHEN seq <= 1 THEN 'created'
    ELSE 'ready'
END

-- part: by_statuses
{status} IN (SELECT value FROM json_each(:statuses))

-- part: tree
-- A session and its descendants.
key IN (
    WITH RECURSIVE down (key) AS (
        SELECT key FROM sessions WHERE {by_session_id}
        UNION
        SELECT sessions.key FROM down JOIN sessions ON sessions.parent = down.key
    )
    SELECT key FROM down
)

-- part: trees
-- Several sessions and their descendants.
key IN (
    WITH RECURSIVE down (key) AS (
        SELECT key FROM sessions WHERE {by_ids}
        UNION
        SELECT sessions.key FROM down JOIN sessions ON sessions.parent = down.key
    )
    SELECT key FROM down
)

-- part: due
-- The first condition is a range of the index; 0 is due even if the clock is before 1970. The plus keeps SQLite from
-- looking at all sessions of the workflows instead.
wakes_at <= max(:now, 0) AND (wakes_at <= :now OR wakes_at = 0) AND wakes_at IS NOT NULL
    AND pause_requested = 0 AND guest = 0 AND removing = 0 AND (ended IS NULL OR ended = 'failed')
    AND +workflow IN (SELECT value FROM json_each(:workflows))

-- part: exempted
-- While everything is paused, only the few sessions that were resumed since can run. A condition follows.
INDEXED BY sessions_exempt WHERE exempt = :round AND exempt > 0 AND

-- name: owner_of
SELECT owner FROM sessions WHERE session_id = ?

-- name: facts
-- The facts about sessions, in the order of `SessionRow`. Callers add a WHERE.
SELECT
    key, session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
    seq, key_frame, digest, step, visit, held_by_guard, ended, failure,
    pause_requested, pause_mode, cancel_requested, holder, fence, waiting, wakes_at,
    crashes, spent_usd, spent_tokens, spent_operations, budget_usd, budget_tokens, budget_operations,
    (SELECT count(*) FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0),
    progress, parent, keep_for, mail, {frozen},
    (SELECT above.session_id FROM sessions AS above WHERE above.key = sessions.parent),
    kept_by, removing, given_sum, moved_sum, ready_at,
    iif({stopped}, (SELECT mode FROM standing_pause), NULL), guest, signals_n,
    queue, priority, lane
FROM sessions

-- name: place
-- A session's position, holder and requests, and whether it has an end that a move takes back. This runs before `move`,
-- because a RETURNING there would cost a temporary table for each commit.
SELECT
    key, seq, fence, holder, head, pause_requested, pause_mode, cancel_requested, mail,
    coalesce(ended, failure)
FROM sessions WHERE key = ?

-- part: moves
seq = ?, tail = ?, head = ?, key_frame = ?, digest = ?, updated_at = max(updated_at, ?),
    step = ?, visit = ?, held_by_guard = ?, progress = ?, moved_sum = ?
WHERE key = ?

-- name: move
-- Move a session forward. `head` is the log id of its last record, `tail` that of the last record before this commit.
-- This is for an ordinary checkpoint, which spends nothing; a release, an end and a new version are separate statements.
UPDATE sessions SET crashes = 0, {moves}

-- name: move_and_count
-- The same for a commit that spends something, or keeps the crash count.
UPDATE sessions SET
    crashes = crashes * ?, spent_usd = spent_usd + ?, spent_tokens = spent_tokens + ?,
    spent_operations = spent_operations + ?, {moves}

-- name: end
-- Set how a session ended; NULL if a failed one goes on.
UPDATE sessions SET ended = ?, failure = ? WHERE key = ?

-- name: set_version
UPDATE sessions SET version = ? WHERE key = ?

-- name: session_id
SELECT session_id FROM sessions WHERE key = ?

-- name: append
INSERT INTO log (id, prev, session, seq, parent, kind, step, visit, at, payload, salt, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- part: log_end
SELECT coalesce(max(id), 0) FROM log

-- name: log_end
{log_end}

-- name: release
-- What parks under the pause of everything is due once that is lifted.
UPDATE sessions SET holder = NULL, waiting = ?1, wakes_at = ifnull(?2, iif({stopped}, 0, NULL)) WHERE key = ?3

-- name: keep
-- The engine that gives up the hold still has the step in memory.
UPDATE sessions SET kept_by = holder WHERE key = ?

-- name: unkeep
UPDATE sessions SET kept_by = NULL WHERE key = ? AND fence = ? AND kept_by = ?

-- name: unkeep_all
UPDATE sessions SET kept_by = NULL WHERE kept_by = ?

-- name: release_waiting
-- If what the session waits for arrived while it was parking, it is due immediately.
UPDATE sessions SET holder = NULL, waiting = ?1, wakes_at = CASE
    WHEN mail AND (
        (instr(?1, 'answer') AND EXISTS (SELECT 1 FROM inbox WHERE session = key AND kind = 'answer'))
        OR (instr(?1, 'child') AND EXISTS (SELECT 1 FROM inbox WHERE session = key AND kind = 'child'))
        OR (instr(?1, 'message') AND EXISTS (SELECT 1 FROM inbox WHERE session = key AND kind = 'message'))
    ) THEN 0 ELSE ?2 END
WHERE key = ?3

-- name: give_back
-- Release a session that this engine held when a commit failed, unless another engine has claimed it since.
UPDATE sessions SET holder = NULL, ready_at = {ready} WHERE key = ? AND fence = ? AND holder = ?

-- name: release_all
UPDATE sessions SET holder = NULL, ready_at = {ready} WHERE holder = ?

-- name: held_by
SELECT key FROM sessions WHERE holder = ? ORDER BY key LIMIT ?

-- name: free
-- Release sessions whose engine died, and count the crash.
UPDATE sessions SET holder = NULL, crashes = crashes + 1, ready_at = {ready}
WHERE key IN (SELECT value FROM json_each(?))

-- name: reckon
-- Store since when a session is ready. Every change of the facts behind it ends with this.
UPDATE sessions SET ready_at = iif(holder IS NULL, {ready}, NULL) WHERE key = ?

-- name: ready_kinds
-- The queues, workflows and priorities of the sessions that are ready now or later. Each step jumps to the next kind in
-- the index, so the cost follows the number of kinds, not that of sessions.
WITH RECURSIVE kinds (queue, workflow, priority) AS (
    SELECT * FROM (
        SELECT queue, workflow, priority FROM sessions INDEXED BY sessions_ready WHERE ready_at IS NOT NULL
        ORDER BY queue, workflow, priority LIMIT 1
    ) AS first
    UNION ALL
    SELECT following.queue, following.workflow, following.priority
    FROM kinds CROSS JOIN sessions AS following
    WHERE following.key = coalesce(
        (SELECT other.key FROM sessions AS other INDEXED BY sessions_ready
            WHERE other.queue = kinds.queue AND other.workflow = kinds.workflow AND other.priority > kinds.priority
                AND other.ready_at IS NOT NULL ORDER BY other.priority LIMIT 1),
        (SELECT other.key FROM sessions AS other INDEXED BY sessions_ready
            WHERE other.queue = kinds.queue AND other.workflow > kinds.workflow AND other.ready_at IS NOT NULL
            ORDER BY other.workflow, other.priority LIMIT 1),
        (SELECT other.key FROM sessions AS other INDEXED BY sessions_ready
            WHERE other.queue > kinds.queue AND other.ready_at IS NOT NULL
            ORDER BY other.queue, other.workflow, other.priority LIMIT 1)
    )
)
SELECT queue, workflow, priority FROM kinds

-- name: ready
-- Ready sessions of one kind, those that have waited longest first, after a position.
SELECT ready_at, key, lane, owner FROM sessions INDEXED BY sessions_ready
WHERE queue = :queue AND workflow = :workflow AND priority = :priority AND ready_at <= :now AND ready_at IS NOT NULL
    AND (ready_at, key) > (:after_at, :after_key) AND (:due = 0 OR wakes_at IS NOT NULL)
ORDER BY ready_at, key LIMIT :limit

-- name: ready_exempt
-- The few ready sessions that the pause of everything does not stop.
SELECT priority, ready_at, key, queue, workflow, lane, owner
FROM sessions INDEXED BY sessions_exempt
WHERE exempt = :round AND exempt > 0 AND ready_at <= :now AND ready_at IS NOT NULL

-- part: due_candidates
SELECT priority, wakes_at, key, queue, workflow, lane, owner FROM sessions

-- part: by_keys
key IN (SELECT value FROM json_each(:keys))

-- name: at_work
-- How many sessions each engine holds, by what limits look at.
SELECT holder, queue, workflow, lane, owner, count(*) FROM sessions INDEXED BY sessions_held
WHERE holder IS NOT NULL AND guest = 0 GROUP BY holder, queue, workflow, lane, owner

-- name: ready_counts
-- How many sessions are ready now, by queue and workflow.
SELECT queue, workflow, count(*) FROM sessions INDEXED BY sessions_ready
WHERE ready_at <= ? AND ready_at IS NOT NULL GROUP BY queue, workflow

-- name: everything
-- The pause of everything as one number: the round times two, plus one if it aborts. No row if it is not in effect.
SELECT round * 2 + (mode = 'abort') FROM standing_pause

-- name: exempt
SELECT exempt FROM sessions WHERE key = ?

-- name: settle
-- Count the time that lifted pauses of everything froze. They no longer concern the session then.
UPDATE sessions SET frozen = {frozen}, exempt = {last_lifted} WHERE key = ? AND exempt < {last_lifted}

-- name: lifted_records
-- The session's records of lifted pauses of everything, with the lift.
SELECT id, lifted_at, lifted_by FROM pauses JOIN pause_rounds ON round = standing
WHERE session = ? AND closed_at IS NULL AND standing > 0 AND lifted_at IS NOT NULL ORDER BY n

-- name: excuse
UPDATE sessions SET exempt = (SELECT round FROM standing_pause)
WHERE key = ? AND (ended IS NULL OR ended = 'failed') AND EXISTS (SELECT 1 FROM standing_pause)

-- name: follow
-- A session that is opened again is as exempt as its parent.
UPDATE sessions SET exempt = max({last_lifted}, ifnull((
    SELECT above.exempt FROM sessions AS above WHERE above.key = sessions.parent
), 0))
WHERE key = ?

-- name: stopped_since
-- The pause of everything that stops a session, and since when; no row if none does, or if it is noted already.
SELECT reason, "by", mode, freeze, epoch,
    (SELECT min(at) FROM pause_rounds WHERE epoch = standing_pause.epoch AND round > exempt)
FROM sessions JOIN standing_pause WHERE key = ? AND {stopped} AND NOT EXISTS (
    SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = standing_pause.epoch
)

-- name: due_later
-- What parks under the pause of everything is due once that is lifted.
UPDATE sessions SET wakes_at = 0 WHERE key = ? AND wakes_at IS NULL AND waiting IS NULL AND ended IS NULL

-- name: not_due
-- A session that waits for nothing is no longer due: the engine that resumes it drives it.
UPDATE sessions SET wakes_at = NULL WHERE key = ? AND wakes_at = 0 AND waiting IS NULL

-- name: last_round
SELECT ifnull(max(round), 0) FROM pause_rounds

-- name: add_round
INSERT INTO pause_rounds (round, epoch, at, freeze, asked) VALUES (?, ?, ?, ?, ?)

-- name: end_rounds
UPDATE pause_rounds SET lifted_at = ?, lifted_by = ? WHERE lifted_at IS NULL

-- name: is_requested
-- Whether everything is paused, or was since a request of that time.
SELECT EXISTS (SELECT 1 FROM standing_pause) OR EXISTS (SELECT 1 FROM pause_rounds WHERE at = ?)

-- name: rounds_agree
-- Whether the pause of everything is the last request that was not lifted.
SELECT (SELECT max(round) FROM pause_rounds WHERE lifted_at IS NULL) IS (SELECT round FROM standing_pause)

-- name: anybody_exempt
SELECT EXISTS (
    SELECT 1 FROM sessions INDEXED BY sessions_exempt WHERE exempt = ? AND exempt > 0 AND removing = 0
)

-- name: is_freezing
SELECT {own_frozen} FROM sessions WHERE key = ?

-- name: keep_blob
INSERT INTO blobs (hash, data) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING

-- name: name_blob
INSERT INTO names (session, hash) VALUES (?, ?) ON CONFLICT (session, hash) DO NOTHING

-- name: has_blob
SELECT EXISTS (SELECT 1 FROM blobs WHERE hash = ?)

-- name: consume
DELETE FROM inbox WHERE session = ? AND n = ?

-- name: look_for_mail
UPDATE sessions SET mail = EXISTS (SELECT 1 FROM inbox WHERE session = key) WHERE key = ?

-- name: thaw
UPDATE sessions SET frozen = 0, exempt = max(exempt, {last_lifted}) WHERE key = ?

-- part: spent_usd
spent_usd

-- name: charge_ancestors
-- One transaction writes at a time, so the rows of the ancestors can be changed at once. Postgres appends to a table.
WITH RECURSIVE up (key) AS (
    SELECT parent FROM sessions WHERE key = ?1 AND parent IS NOT NULL
    UNION
    SELECT sessions.parent FROM up JOIN sessions USING (key) WHERE sessions.parent IS NOT NULL
)
UPDATE sessions SET
    spent_usd = spent_usd + ?2, spent_tokens = spent_tokens + ?3, spent_operations = spent_operations + ?4
WHERE key IN (SELECT key FROM up)

-- name: purses
-- Spending and budget of a session and its ancestors.
WITH RECURSIVE up (key) AS (
    VALUES (?)
    UNION
    SELECT sessions.parent FROM up JOIN sessions USING (key) WHERE sessions.parent IS NOT NULL
)
SELECT session_id, spent_usd, spent_tokens, spent_operations, budget_usd, budget_tokens, budget_operations
FROM up JOIN sessions USING (key)
WHERE budget_usd IS NOT NULL OR budget_tokens IS NOT NULL OR budget_operations IS NOT NULL

-- name: next_wake
-- The plus keeps SQLite from looking at all sessions of the workflows.
SELECT min(wakes_at) FROM sessions
WHERE wakes_at > :now AND wakes_at IS NOT NULL AND wakes_at <> 0 AND pause_requested = 0 AND guest = 0 AND removing = 0
    AND +workflow IN (SELECT value FROM json_each(:workflows))

-- name: waking
-- Sessions that wake up after a time, the earliest first. Callers put the facts before it.
INDEXED BY sessions_waking
WHERE wakes_at > :now AND wakes_at IS NOT NULL AND pause_requested = 0 AND guest = 0 AND removing = 0
    AND (:owner IS NULL OR owner = :owner) AND ended IS NULL
    AND NOT EXISTS (SELECT 1 FROM pauses WHERE session = sessions.key AND closed_at IS NULL AND standing = 0)
ORDER BY wakes_at, key LIMIT :limit

-- name: holders
SELECT DISTINCT holder FROM sessions WHERE holder IS NOT NULL

-- name: open_pause
INSERT INTO pauses (
    session, id, kind, reason, "by", at, step, mode, freeze, closed_at, closed_by, standing, took_effect_at, opened_sum
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: took_effect
-- A session has parked because of its own pauses.
UPDATE pauses SET took_effect_at = ?
WHERE session = ? AND closed_at IS NULL AND kind = 'operator' AND standing = 0 AND took_effect_at IS NULL

-- name: driven
-- The engines with sessions that another request to pause everything would stop, and how many.
SELECT holder, count(*) FROM sessions INDEXED BY sessions_held
WHERE holder IS NOT NULL AND ended IS NULL AND removing = 0
    AND exempt >= coalesce((SELECT round FROM standing_pause), 0)
GROUP BY holder

-- name: stopping
-- How many sessions the pause of everything asked to stop, and the longest time that one of them took.
SELECT (SELECT sum(asked) FROM pause_rounds WHERE pause_rounds.epoch = standing_pause.epoch),
    (SELECT max(pauses.took_effect_at - pauses.at) FROM pauses INDEXED BY pauses_stopped
        WHERE pauses.standing = standing_pause.epoch AND pauses.took_effect_at IS NOT NULL)
FROM standing_pause

-- name: close_pause
UPDATE pauses SET closed_at = ?, closed_by = ?, closed_sum = ? WHERE session = ? AND id = ? AND closed_at IS NULL

-- name: close_all_pauses
UPDATE pauses SET closed_at = ?, closed_by = ?, closed_sum = ? WHERE session = ? AND {open}

-- name: create
INSERT INTO sessions (
    session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
    seq, head, key_frame, digest, step, visit, holder, ready_at, fence, budget_usd, signals_digest, parent, keep_for,
    held_by_guard, given_sum, moved_sum, budget_tokens, budget_operations, guest, queue, priority, lane, wakes_at, exempt
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ({log_end}) + ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
    ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31,
    max({last_lifted}, ifnull((SELECT above.exempt FROM sessions AS above WHERE above.key = ?20), 0))
)
ON CONFLICT (session_id) DO NOTHING

-- name: tag
-- No trigger does this: with one, SQLite would keep a journal for the INSERT of every session, also without tags.
INSERT OR IGNORE INTO tagged (tag, at, session)
SELECT value, created_at, sessions.key FROM sessions, json_each(tags) WHERE sessions.key = ?

-- name: claim
-- A claim reopens a failed session. The failure stays until the next commit.
UPDATE sessions SET
    holder = ?, kept_by = NULL, fence = fence + 1, ended = NULL, waiting = NULL, wakes_at = NULL, ready_at = NULL,
    moved_sum = ?
WHERE key = ?

-- name: reopen
-- Like a claim, this keeps the failure until the next commit.
UPDATE sessions SET ended = NULL, moved_sum = ? WHERE key = ?

-- name: given
-- The facts that `given_sum` covers, in the order of `checksums.given`.
SELECT session_id, workflow, version, owner, tags, input_digest, created_at, parent, keep_for, budget_usd,
    budget_tokens, budget_operations, cancel_requested, guest, queue, priority, lane
FROM sessions WHERE key = ?

-- name: seal_given
UPDATE sessions SET given_sum = ? WHERE key = ?

-- name: withdraw_cancel
UPDATE sessions SET cancel_requested = 0 WHERE key = ?

-- name: own_pauses
-- Operator pauses of the session itself, which are not part of the pause of everything.
SELECT count(*) FROM pauses WHERE session = ? AND closed_at IS NULL AND kind = 'operator' AND standing = 0

-- name: raise_pauses
UPDATE pauses SET mode = 'abort' WHERE session = ? AND closed_at IS NULL AND kind = 'operator' AND standing = 0

-- name: standing_pause
SELECT id, reason, "by", at, mode, freeze, epoch, round, sum FROM standing_pause

-- name: let_stand
INSERT OR REPLACE INTO standing_pause (n, id, reason, "by", at, mode, freeze, epoch, round, sum)
VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: lift
DELETE FROM standing_pause RETURNING n

-- name: wake
UPDATE sessions SET wakes_at = 0 WHERE key = ?

-- name: withdraw_pauses
UPDATE pauses SET closed_at = ?, closed_by = ?, closed_sum = ?
WHERE session = ? AND {open} AND kind = 'operator'

-- name: close_reasons
-- Close the pauses that an engine tests again when it drives the session.
UPDATE pauses SET closed_at = ?, closed_by = ?, closed_sum = ?
WHERE session = ? AND {open} AND kind <> 'operator' RETURNING 1

-- name: forgive
UPDATE sessions SET crashes = 0 WHERE key = ?

-- name: request_pause
UPDATE sessions SET pause_requested = 1, pause_mode = ? WHERE key = ?

-- name: stop
-- Pause a session whose facts cannot be read. No checksum covers this flag.
UPDATE sessions SET pause_requested = 1, pause_mode = ? WHERE key = ? AND (ended IS NULL OR ended = 'failed')
RETURNING key

-- name: withdraw_request
UPDATE sessions SET pause_requested = 0, pause_mode = 'finish' WHERE key = ? AND pause_requested = 1

-- name: frozen_since
SELECT {frozen_since} FROM sessions WHERE key = ?

-- name: freeze
UPDATE sessions SET frozen = frozen + ? WHERE key = ?

-- name: set_budget
-- A limit that is not given stays as it is.
UPDATE sessions SET
    budget_usd = coalesce(?, budget_usd), budget_tokens = coalesce(?, budget_tokens),
    budget_operations = coalesce(?, budget_operations)
WHERE key = ?

-- name: request_cancel
UPDATE sessions SET cancel_requested = 1 WHERE key = ?

-- name: cancelled_open
-- Sessions that were asked to end and have not, parents first. Opening a store reads it.
SELECT key FROM sessions INDEXED BY sessions_cancelled
WHERE cancel_requested = 1 AND (ended IS NULL OR ended = 'failed') AND removing = 0 ORDER BY key

-- name: signals_head
SELECT session_id, seq, signals_n, signals_digest FROM sessions WHERE key = ?

-- name: append_signal
INSERT INTO signals (session, n, after, kind, "by", at, payload, digest, salt, body, log_end)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT coalesce(max(id), 0) FROM log))

-- name: move_signals
UPDATE sessions SET signals_n = ?, signals_digest = ? WHERE key = ?

-- name: deliver
INSERT INTO inbox (session, n, kind, about) VALUES (?, ?, ?, ?)

-- name: has_mail
-- The session becomes due if it waits for this kind of signal.
UPDATE sessions SET mail = 1, wakes_at = CASE WHEN instr(coalesce(waiting, ''), ?) THEN 0 ELSE wakes_at END
WHERE key = ?

-- name: mail
SELECT n FROM inbox WHERE session = ? ORDER BY n LIMIT ?

-- name: mail_of_kind
SELECT n FROM inbox WHERE session = ? AND kind = ? ORDER BY n LIMIT ?

-- name: mail_about
SELECT n FROM inbox WHERE session = ? AND kind = ? AND about = ? ORDER BY n LIMIT ?

-- name: file_signals
SELECT n FROM files WHERE session = ? ORDER BY n

-- name: file_by_id
SELECT n FROM files WHERE session = ? AND id = ?

-- name: files_of_content
SELECT n FROM files WHERE session = ? AND content = ? ORDER BY n

-- name: note_file
INSERT INTO files (session, id, content, n) VALUES (?, ?, ?, ?)

-- name: sent_with_key
SELECT session, n FROM sent WHERE root = ? AND once = ?

-- name: note_sent
INSERT OR IGNORE INTO sent (root, once, session, n) VALUES (?, ?, ?, ?)

-- name: log_head
SELECT session_id, seq, digest, head FROM sessions WHERE key = ?

-- name: records
-- Records from the log id ?1 back to `seq` ?3, newest first, without those after `seq` ?4. CROSS JOIN fixes the order
-- of the join; after an ANALYZE, SQLite could otherwise scan the log in another order.
WITH RECURSIVE chain (id, prev, seq) AS (
    SELECT id, prev, seq FROM log WHERE id = ?1 AND session = ?2
    UNION ALL
    SELECT log.id, log.prev, log.seq FROM chain CROSS JOIN log ON log.id = chain.prev
    WHERE chain.seq > ?3 AND log.session = ?2 AND log.seq < chain.seq
)
SELECT log.seq, parent, kind, step, visit, at, payload, salt, body, digest
FROM chain CROSS JOIN log USING (id) WHERE chain.seq <= ?4

-- name: record_digest
-- Walks back from the end, so it is fast only for recent records.
WITH RECURSIVE chain (id, prev, seq) AS (
    SELECT log.id, log.prev, log.seq FROM sessions JOIN log ON log.id = sessions.head WHERE sessions.key = ?1
    UNION ALL
    SELECT log.id, log.prev, log.seq FROM chain CROSS JOIN log ON log.id = chain.prev
    WHERE chain.seq > ?2 AND log.session = ?1 AND log.seq < chain.seq
)
SELECT digest FROM chain CROSS JOIN log USING (id) WHERE chain.seq = ?2

-- name: key_frame_after
-- The log id of the first key frame at or after a record. Reading backwards starts there.
SELECT id FROM log WHERE session = ? AND kind = 'key' AND seq >= ? ORDER BY seq LIMIT 1

-- name: key_frame_before
SELECT seq FROM log WHERE session = ? AND kind = 'key' AND seq <= ? ORDER BY seq DESC LIMIT 1

-- name: signals
SELECT n, after, kind, "by", at, payload, digest, salt, body FROM signals WHERE session = ? AND n BETWEEN ? AND ? ORDER BY n

-- name: any_removing
SELECT EXISTS (SELECT 1 FROM sessions INDEXED BY sessions_removing WHERE removing = 1)

-- name: changed_records
-- Records after ?1 and up to ?2, without those of sessions that are being removed or have a key up to ?3. Each with its
-- session, so that a page needs few statements. CROSS JOIN keeps the order of the log.
SELECT key, session_id, sessions.parent, signals_n, log.id, log.seq
FROM log CROSS JOIN sessions ON sessions.key = log.session
WHERE log.id > ?1 AND log.id <= ?2 AND log.session > ?3 AND sessions.removing = 0 ORDER BY log.id LIMIT ?4

-- name: changed_signals
SELECT key, session_id, sessions.parent, signals_n, signals.id, signals.n, signals.after, signals.log_end
FROM signals CROSS JOIN sessions ON sessions.key = signals.session
WHERE signals.id > ?1 AND signals.id <= ?2 AND signals.session > ?3 AND sessions.removing = 0
ORDER BY signals.id LIMIT ?4

-- name: changed_stones
SELECT n, session_id, workflow, owner, status, created_at, removed_at, "by", reason, records, digest, sum
FROM tombstones WHERE n > ? ORDER BY n LIMIT ?

-- name: last_signal_until
-- The number of a session's last signal up to an id.
SELECT n FROM signals WHERE session = ? AND id <= ? ORDER BY n DESC LIMIT 1

-- name: signal_after
SELECT after FROM signals WHERE session = ? AND n = ?

-- name: last_live_record
SELECT log.id FROM log CROSS JOIN sessions ON sessions.key = log.session
WHERE sessions.removing = 0 ORDER BY log.id DESC LIMIT 1

-- name: last_live_signal
SELECT signals.id FROM signals CROSS JOIN sessions ON sessions.key = signals.session
WHERE sessions.removing = 0 ORDER BY signals.id DESC LIMIT 1

-- name: last_stone
SELECT n FROM tombstones ORDER BY n DESC LIMIT 1

-- name: record_point
SELECT digest FROM log WHERE id = ?

-- name: signal_point
SELECT digest FROM signals WHERE id = ?

-- name: stone_point
SELECT digest FROM tombstones WHERE n = ?

-- name: ancestors
-- The ids of a session and its ancestors, the session first.
WITH RECURSIVE up (key, depth) AS (
    SELECT ?1, 0
    UNION ALL
    SELECT sessions.parent, depth + 1 FROM up JOIN sessions USING (key)
    WHERE sessions.parent IS NOT NULL AND sessions.parent < sessions.key
)
SELECT session_id FROM up JOIN sessions USING (key) ORDER BY depth

-- name: blob_place
SELECT id FROM blobs WHERE hash = ?

-- name: flags
SELECT key, fence, {asked}, {mode}, cancel_requested, mail
FROM sessions WHERE key = ?

-- name: pauses
-- With the lift of the pause of everything that a record is part of.
SELECT id, kind, reason, "by", pauses.at, step,
    iif({open} AND standing > 0, (SELECT mode FROM standing_pause), mode),
    pauses.freeze, closed_at, closed_by, standing > 0, took_effect_at, opened_sum, closed_sum, lifted_at, lifted_by
FROM pauses LEFT JOIN pause_rounds ON round = standing WHERE session = ? AND ({open} OR NOT ?) ORDER BY n

-- name: pause_flag
SELECT pause_requested, pause_mode, updated_at, {stopped},
    (SELECT min(at) FROM pause_rounds WHERE round > exempt AND lifted_at IS NULL)
FROM sessions WHERE key = ?

-- name: open_pauses
-- The open pauses of several sessions. The columns are those of `pauses` after the session.
SELECT session, id, kind, reason, "by", pauses.at, step,
    iif(standing > 0, (SELECT mode FROM standing_pause), mode),
    pauses.freeze, closed_at, closed_by, standing > 0, took_effect_at, opened_sum, closed_sum, lifted_at, lifted_by
FROM pauses LEFT JOIN pause_rounds ON round = standing
WHERE session IN (SELECT value FROM json_each(?)) AND {open} ORDER BY n

-- name: pause_flags
-- The key, and then as in `pause_flag`.
SELECT key, pause_requested, pause_mode, updated_at, {stopped},
    (SELECT min(at) FROM pause_rounds WHERE round > exempt AND lifted_at IS NULL)
FROM sessions WHERE key IN (SELECT value FROM json_each(?)) AND removing = 0

-- name: register
INSERT INTO engines (pid, host, started_at, workflows, queues) VALUES (?, ?, ?, ?, ?) RETURNING id

-- name: forget_engine
DELETE FROM engines WHERE id = ?

-- name: unheld_engines
-- Engines that hold no session. Those that died can be deleted.
SELECT id FROM engines WHERE id NOT IN (SELECT holder FROM sessions WHERE holder IS NOT NULL)

-- name: engine
SELECT pid, host, started_at FROM engines WHERE id = ?

-- name: leave_mark
-- Also what the engine drives: this row is written anyway.
UPDATE engines SET mark = ?, workflows = ?, queues = ? WHERE id = ?

-- name: mark
SELECT mark FROM engines WHERE id = ?

-- name: data_version
PRAGMA data_version

-- name: blank_records
-- Walks back from the end to the first of the records, because no index contains their numbers.
WITH RECURSIVE chain (id, prev, seq) AS (
    SELECT log.id, log.prev, log.seq FROM sessions JOIN log ON log.id = sessions.head WHERE sessions.key = ?1
    UNION ALL
    SELECT log.id, log.prev, log.seq FROM chain CROSS JOIN log ON log.id = chain.prev
    WHERE chain.seq > ?2 AND log.session = ?1 AND log.seq < chain.seq
)
UPDATE log SET payload = x'', salt = x''
WHERE id IN (SELECT id FROM chain WHERE seq IN (SELECT value FROM json_each(?3)))

-- name: blank_signals
UPDATE signals SET payload = x'', salt = x'' WHERE session = ? AND n IN (SELECT value FROM json_each(?))

-- name: forget_files
-- Files that were added by redacted signals.
DELETE FROM files WHERE session = ? AND n IN (SELECT value FROM json_each(?))

-- name: blank_mail
UPDATE inbox SET about = NULL WHERE session = ? AND n IN (SELECT value FROM json_each(?))

-- name: unname_blob
DELETE FROM names WHERE session = ? AND hash = ?

-- name: doubtful
-- The facts needed to remove a damaged session, and whether table and index agree on its id.
SELECT session_id, (SELECT key FROM sessions AS other WHERE other.session_id = damaged.session_id) IS key,
    holder, (SELECT above.session_id FROM sessions AS above WHERE above.key = damaged.parent),
    workflow, owner, created_at, seq, digest
FROM sessions AS damaged WHERE key = ?

-- name: mark_removing
UPDATE sessions SET holder = NULL, ready_at = NULL, removing = 1, removal = ? WHERE key = ?

-- name: removal
SELECT removal FROM sessions WHERE key = ? AND removing = 1

-- name: removals
-- Children before parents.
SELECT key, removal FROM sessions WHERE removing = 1 ORDER BY key DESC

-- name: last_records
-- The log ids of the last records, newest first, each with the id of the record before it.
WITH RECURSIVE chain (id, prev, seq) AS (
    SELECT log.id, log.prev, log.seq FROM sessions JOIN log ON log.id = sessions.head
    WHERE sessions.key = ?1 AND log.session = ?1
    UNION ALL
    SELECT log.id, log.prev, log.seq FROM chain CROSS JOIN log ON log.id = chain.prev
    WHERE log.session = ?1 AND log.seq < chain.seq
)
SELECT id, prev FROM chain LIMIT ?2

-- name: strip_record
DELETE FROM log WHERE id = ?

-- name: shorten_log
UPDATE sessions SET head = ? WHERE key = ?

-- name: log_is_left
SELECT head != 0 FROM sessions WHERE key = ?

-- name: strip_lost_records
DELETE FROM log WHERE id IN (SELECT id FROM log WHERE session = ? LIMIT ?) RETURNING id

-- name: strip_signals
DELETE FROM signals WHERE id IN (SELECT id FROM signals WHERE session = ? LIMIT ?) RETURNING id

-- name: strip_inbox
DELETE FROM inbox WHERE session = ?1 AND n IN (SELECT n FROM inbox WHERE session = ?1 LIMIT ?2) RETURNING n

-- name: strip_sent
DELETE FROM sent WHERE root = ?1 AND once IN (SELECT once FROM sent WHERE root = ?1 LIMIT ?2) RETURNING n

-- name: strip_files
DELETE FROM files WHERE session = ?1 AND id IN (SELECT id FROM files WHERE session = ?1 LIMIT ?2) RETURNING n

-- name: strip_pauses
DELETE FROM pauses WHERE n IN (SELECT n FROM pauses WHERE session = ? LIMIT ?) RETURNING n

-- name: strip_names
DELETE FROM names WHERE session = ?1 AND hash IN (SELECT hash FROM names WHERE session = ?1 LIMIT ?2) RETURNING 1

-- name: bury
INSERT INTO tombstones (
    session_id, workflow, owner, status, created_at, removed_at, "by", reason, records, digest, sum
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: forget_session
DELETE FROM sessions WHERE key = ?

-- name: expired
-- Root sessions that were inactive for as long as they are kept. `remove` checks their descendants. The first parameter
-- applies to ended sessions without their own `keep_for`; with NULL they are kept.
SELECT key, session_id FROM sessions
WHERE parent IS NULL AND removing = 0
    AND max(updated_at, coalesce(wakes_at, 0))
        + coalesce(keep_for, CASE WHEN ended IN ('completed', 'cancelled') THEN ? END) <= ?
    AND key > ?
ORDER BY key LIMIT ?

-- name: tombstones
-- In the order of `Tombstone`. Callers add a WHERE.
SELECT session_id, workflow, owner, status, created_at, removed_at, "by", reason, records, digest, sum FROM tombstones

-- name: look_at_blobs
SELECT id, size, EXISTS (SELECT 1 FROM names WHERE names.hash = blob.hash)
FROM (SELECT id, hash, length(data) AS size FROM blobs WHERE id > ? ORDER BY id LIMIT ?) AS blob

-- name: forget_blob
DELETE FROM blobs WHERE id = ?

-- name: survey
SELECT key, session_id FROM sessions WHERE key > ? AND removing = 0 ORDER BY key LIMIT ?

-- name: names
SELECT hash, EXISTS (SELECT 1 FROM blobs WHERE blobs.hash = names.hash) FROM names WHERE session = ?

-- name: some_blobs
SELECT id, hash, data FROM blobs WHERE id > ? ORDER BY id LIMIT ?

-- name: strays
-- Sessions whose number of log rows differs from `seq`, and log rows without a session.
SELECT log.session, count(*) FROM log LEFT JOIN sessions ON sessions.key = log.session
WHERE coalesce(sessions.removing, 0) = 0
GROUP BY log.session HAVING count(*) IS NOT max(sessions.seq)

-- name: last_at
SELECT log.at FROM sessions JOIN log ON log.id = sessions.head WHERE sessions.key = ?

-- name: drop_unnamed_blob
DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM names WHERE names.hash = ?1)

-- name: import_session
-- A session from another store. No engine holds it.
INSERT INTO sessions (
    session_id, parent, workflow, version, owner, tags, input_digest, created_at, updated_at, keep_for,
    seq, head, key_frame, digest, step, visit, held_by_guard, ended, failure,
    pause_requested, pause_mode, cancel_requested, fence, waiting, wakes_at, mail, frozen, crashes,
    spent_usd, spent_tokens, spent_operations, budget_usd, budget_tokens, budget_operations,
    progress, signals_n, signals_digest, given_sum, moved_sum, guest, queue, priority, lane, exempt
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ({log_end}) + ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {last_lifted}
)
RETURNING key

-- name: hidden
-- A session that is in the table and not in the index.
SELECT 1 FROM sessions NOT INDEXED WHERE session_id = ?1
AND NOT EXISTS (SELECT 1 FROM sessions AS found WHERE found.session_id = ?1)

-- name: id_is_taken
SELECT EXISTS (SELECT 1 FROM sessions WHERE session_id = ?)

-- name: import_pause
INSERT INTO pauses (
    session, id, kind, reason, "by", at, step, mode, freeze, closed_at, closed_by, standing, took_effect_at, opened_sum,
    closed_sum
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: log_weight
-- The size of some sessions' records.
WITH RECURSIVE chain (id, prev, session) AS (
    SELECT log.id, log.prev, log.session FROM sessions JOIN log ON log.id = sessions.head
    WHERE sessions.key IN (SELECT value FROM json_each(?))
    UNION ALL
    SELECT log.id, log.prev, log.session FROM chain CROSS JOIN log ON log.id = chain.prev
    WHERE log.session = chain.session AND log.id < chain.id
)
SELECT coalesce(sum(length(payload) + length(salt) + length(body) + length(digest)), 0)
FROM chain CROSS JOIN log USING (id)

-- name: value_weight
-- The size of the large values that only these sessions reference.
SELECT coalesce(sum(length(data)), 0) FROM blobs
WHERE hash IN (SELECT hash FROM names WHERE session IN (SELECT value FROM json_each(?1)))
    AND NOT EXISTS (
        SELECT 1 FROM names
        WHERE names.hash = blobs.hash AND names.session NOT IN (SELECT value FROM json_each(?1))
    )

-- name: file_weight
-- The size of these sessions' files, as recorded when they were added.
SELECT coalesce(sum(json_extract(CAST(payload AS TEXT), '$.size')), 0) FROM signals
WHERE session IN (SELECT value FROM json_each(?)) AND kind = 'file' AND length(payload)

-- name: engines
SELECT id, pid, host, started_at, workflows, queues FROM engines ORDER BY id

-- name: tally_ended
-- How many sessions have completed or were cancelled, by workflow. Callers add a condition and a GROUP BY.
SELECT workflow, ended = 'completed', count(*) FROM sessions INDEXED BY sessions_ended
WHERE (ended = 'completed' OR ended = 'cancelled') AND removing = 0

-- name: held_sessions
-- Without the index, SQLite prefers to scan all sessions in the order of the result.
SELECT holder, session_id FROM sessions INDEXED BY sessions_held WHERE holder IS NOT NULL AND removing = 0 ORDER BY created_at, key

-- name: questions
-- Questions with their session, their root session, the record that asks, and since when their timers are frozen.
-- Callers add a WHERE. CROSS JOIN makes SQLite start from the questions, even after an ANALYZE.
SELECT
    questions.n, questions.session, questions.root, questions.id, questions.key, questions.seq, questions.status,
    version, seen, questions.created_at, questions.updated_at, expires_at, answer, told, refused, questions.sum,
    own.session_id, top.session_id, top.workflow, top.owner, log.step, log.payload, log.salt, log.body,
    own.frozen, own.failure, own.ended, own.frozen_since
FROM questions
    CROSS JOIN (
        SELECT key, session_id, {frozen} AS frozen, {frozen_since} AS frozen_since, failure, ended, removing
        FROM sessions
    ) AS own
        ON own.key = questions.session AND own.removing = 0
    CROSS JOIN (SELECT key, session_id, workflow, owner FROM sessions) AS top ON top.key = questions.root
    LEFT JOIN log ON log.id = questions.place AND log.session = questions.session AND log.seq = questions.seq

-- name: tally_questions
-- Count questions by current status. A waiting question has expired if its time is over; time under frozen timers does
-- not count. Callers add a WHERE and a GROUP BY.
SELECT
    iif(status = 'WAITING_USER_INPUT' AND expires_at + own.frozen
        + coalesce(max(:now - max(own.frozen_since, questions.updated_at), 0), 0) <= :now,
        'EXPIRED', status) AS status_now,
    count(*)
FROM questions CROSS JOIN (
    SELECT key, {frozen} AS frozen, {frozen_since} AS frozen_since, removing FROM sessions
) AS own
    ON own.key = questions.session AND own.removing = 0

-- name: question_is_open
SELECT EXISTS (SELECT 1 FROM questions WHERE session = ? AND id = ? AND status = 'WAITING_USER_INPUT')

-- name: open_questions
SELECT n, session, root, id, key, seq, status, version, seen, created_at, updated_at, expires_at, answer, told, refused,
    sum
FROM questions WHERE session = ? AND status IN ('WAITING_USER_INPUT', 'RESUMED')

-- name: root_of
-- The root of a session's tree.
WITH RECURSIVE up (key, parent) AS (
    SELECT key, parent FROM sessions WHERE key = ?1
    UNION
    SELECT sessions.key, sessions.parent FROM up JOIN sessions ON sessions.key = up.parent
)
SELECT key FROM up WHERE parent IS NULL

-- name: ask
INSERT INTO questions (
    session, root, place, id, key, seq, status, version, seen, created_at, updated_at, expires_at, answer, told, refused,
    sum
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    place = excluded.place, seq = excluded.seq, status = excluded.status, version = excluded.version,
    seen = excluded.seen, updated_at = excluded.updated_at, expires_at = excluded.expires_at, answer = excluded.answer,
    told = 0, sum = excluded.sum

-- name: question_before
SELECT n, session, root, id, key, seq, status, version, seen, created_at, updated_at, expires_at, answer, told, refused,
    sum
FROM questions WHERE id = ?

-- name: change_question
UPDATE questions SET status = ?, updated_at = ?, expires_at = ?, answer = ?, told = ?, refused = ?, sum = ? WHERE n = ?

-- name: strip_questions
DELETE FROM questions WHERE n IN (SELECT n FROM questions WHERE session = ? LIMIT ?) RETURNING n

-- name: settled_questions
-- Questions that were settled before a time, except those of sessions that are being removed.
SELECT n FROM questions
WHERE status IN ('COMPLETED', 'EXPIRED', 'CANCELLED') AND updated_at < ?
    AND session NOT IN (SELECT key FROM sessions WHERE removing = 1)
LIMIT ?

-- name: forget_question
DELETE FROM questions WHERE n = ?

-- name: all_questions
SELECT n, session, root, id, key, seq, status, version, seen, created_at, updated_at, expires_at, answer, told, refused,
    sum
FROM questions WHERE session = ? ORDER BY n

-- name: question
SELECT n, session, root, id, key, seq, status, version, seen, created_at, updated_at, expires_at, answer, told, refused,
    sum
FROM questions WHERE n = ?

-- name: stray_files
-- Rows of `files` without a signal, and file signals without a row.
WITH brought (session, n) AS (
    SELECT session, n FROM signals JOIN sessions ON sessions.key = session
    WHERE signals.kind = 'file' AND length(payload) AND removing = 0
), known (session, n) AS (
    SELECT session, n FROM files LEFT JOIN sessions ON sessions.key = session WHERE coalesce(removing, 0) = 0
)
SELECT * FROM (SELECT * FROM brought EXCEPT SELECT * FROM known)
UNION SELECT * FROM (SELECT * FROM known EXCEPT SELECT * FROM brought)

-- name: stray_sent
-- Rows of `sent` without a signal, and messages with a key without a row. A redacted message has lost its key, and a
-- damaged one is reported with its session.
WITH keyed (session, n) AS (
    SELECT session, n FROM signals JOIN sessions ON sessions.key = session
    WHERE signals.kind IN ('message', 'answer') AND instr(payload, CAST('"once":' AS BLOB)) AND removing = 0
        AND iif(json_valid(CAST(payload AS TEXT)), json_extract(CAST(payload AS TEXT), '$.once'), NULL) IS NOT NULL
)
SELECT sent.session, sent.n FROM sent LEFT JOIN signals USING (session, n) WHERE signals.id IS NULL
UNION SELECT * FROM (SELECT * FROM keyed EXCEPT SELECT session, n FROM sent)

-- name: stray_tags
-- Sessions whose tags or times differ from those in `tagged`, and rows of `tagged` without a session. The checksum of
-- the facts covers tags that are not JSON.
WITH own (session, tag, at) AS (
    SELECT sessions.key, value, created_at FROM sessions JOIN json_each(iif(json_valid(tags), tags, '[]'))
)
SELECT session FROM (SELECT * FROM own EXCEPT SELECT session, tag, at FROM tagged)
UNION SELECT session FROM (SELECT session, tag, at FROM tagged EXCEPT SELECT * FROM own)

-- name: stray_questions
-- Questions without a session.
SELECT n FROM questions WHERE session NOT IN (SELECT key FROM sessions) OR root NOT IN (SELECT key FROM sessions)

-- name: request
SELECT key, digest, answer, until, holder, took_effect, sum FROM remembered WHERE key = ?

-- name: request_to_change
SELECT key, digest, answer, until, holder, took_effect, sum FROM remembered WHERE key = ?

-- name: keep_request
INSERT INTO remembered (key, digest, answer, until, holder, took_effect, sum) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, answer = excluded.answer, until = excluded.until,
    holder = excluded.holder, took_effect = excluded.took_effect, sum = excluded.sum

-- name: forget_request
-- A request that took effect must be answered instead.
DELETE FROM remembered WHERE key = ? AND holder = ? AND answer IS NULL AND took_effect = 0

-- name: keep_effect
INSERT OR IGNORE INTO effects (request, session) SELECT n, ? FROM remembered WHERE key = ?

-- name: forget_effects
DELETE FROM effects WHERE request = (SELECT n FROM remembered WHERE key = ?)

-- name: treated
SELECT session_id FROM effects JOIN sessions ON sessions.key = effects.session AND removing = 0
WHERE request = (SELECT n FROM remembered WHERE key = ?) ORDER BY sessions.key

-- name: forget_expired_effects
-- Before the requests themselves.
DELETE FROM effects
WHERE request IN (SELECT n FROM remembered WHERE until <= ? ORDER BY until LIMIT ?)

-- name: forget_expired
DELETE FROM remembered WHERE n IN (SELECT n FROM remembered WHERE until <= ? ORDER BY until LIMIT ?)

-- name: all_requests
SELECT n, key, digest, answer, until, holder, took_effect, sum FROM remembered

-- name: keep_description
INSERT INTO descriptions (workflow, version, digest, document, seen_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (digest) DO UPDATE SET workflow = excluded.workflow, version = excluded.version,
    document = excluded.document, seen_at = max(seen_at, excluded.seen_at)

-- name: forget_old_descriptions
DELETE FROM descriptions WHERE n IN (
    SELECT n FROM descriptions WHERE workflow = ? AND version = ? ORDER BY seen_at DESC, n DESC LIMIT -1 OFFSET ?
)

-- name: description
SELECT n, workflow, version, digest, document, seen_at FROM descriptions WHERE digest = ?

-- name: descriptions
SELECT n, workflow, version, digest, document, seen_at FROM descriptions WHERE workflow = ?
ORDER BY version DESC, seen_at DESC, n DESC

-- name: newest_descriptions
-- The newest description of each workflow.
SELECT n, workflow, version, digest, document, seen_at FROM descriptions AS one
WHERE n = (
    SELECT n FROM descriptions WHERE workflow = one.workflow ORDER BY version DESC, seen_at DESC, n DESC LIMIT 1
)
ORDER BY workflow

-- name: all_descriptions
SELECT n, workflow, version, digest, document, seen_at FROM descriptions

-- name: forget_descriptions
DELETE FROM descriptions WHERE n IN (
    SELECT n FROM descriptions
    WHERE seen_at < ? AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.workflow = descriptions.workflow)
    LIMIT ?
)

-- name: schedules
SELECT * FROM schedules ORDER BY name

-- name: schedule
SELECT * FROM schedules WHERE name = ?

-- name: due_schedules
SELECT * FROM schedules
WHERE (triggered_at IS NOT NULL OR (next_at <= ?1 AND paused_at IS NULL))
    AND workflow IN (SELECT value FROM json_each(?2))
ORDER BY next_at, name

-- name: next_schedule
SELECT min(next_at) FROM schedules
WHERE next_at > ?1 AND paused_at IS NULL AND workflow IN (SELECT value FROM json_each(?2))

-- name: put_schedule
REPLACE INTO schedules VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_schedule
DELETE FROM schedules WHERE name = ?

-- name: limits
SELECT scope, name, "by", rate, declared, most, per, full_at, sum FROM limits ORDER BY scope, name, "by", rate, declared

-- name: lock_limits
-- A write of SQLite is alone, so this needs no lock.
SELECT scope, name, "by", rate, declared, most, per, full_at, sum FROM limits ORDER BY scope, name, "by", rate, declared

-- name: put_limit
INSERT INTO limits (scope, name, "by", rate, declared, most, per, full_at, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, name, "by", rate, declared) DO UPDATE SET
    most = excluded.most, per = excluded.per, sum = excluded.sum,
    full_at = CASE WHEN limits.most IS excluded.most AND limits.per = excluded.per THEN limits.full_at ELSE excluded.full_at END

-- name: use_limit
UPDATE limits SET full_at = ? WHERE scope = ? AND name = ? AND "by" = ? AND rate = ? AND declared = ?

-- name: drop_limits
DELETE FROM limits WHERE scope = ? AND name = ? AND declared = ?

-- name: standing_or_limited
-- Whether the pause of everything is in effect, and whether there are limits.
SELECT EXISTS (SELECT 1 FROM standing_pause), EXISTS (SELECT 1 FROM limits)

-- name: drawer_session
-- The key of a session whose drawer is used.
SELECT key FROM sessions WHERE session_id = ? AND removing = 0

-- name: drawer
SELECT id, changed, version, keep_for, sum FROM drawers WHERE session = ? AND name = ?

-- name: new_drawer
INSERT INTO drawers (session, name, changed, version, keep_for, sum) VALUES (?, ?, ?, ?, ?, ?) RETURNING id

-- name: touch_drawer
UPDATE drawers SET changed = ?, version = ?, keep_for = ?, sum = ? WHERE id = ?

-- name: drawer_stream
SELECT id, stream, n, changed, note, last, sum FROM drawer_streams WHERE drawer = ? AND stream = ?

-- name: drawer_streams
SELECT id, stream, n, changed, note, last, sum FROM drawer_streams WHERE drawer = ? AND stream >= ? AND stream < ?
ORDER BY stream

-- name: new_stream
INSERT INTO drawer_streams (drawer, stream, n, changed, note, last, sum) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id

-- name: touch_stream
UPDATE drawer_streams SET n = ?, changed = ?, note = ?, last = ?, sum = ? WHERE id = ?

-- name: drop_entries
DELETE FROM drawer_entries WHERE stream = ?

-- name: drop_stream
DELETE FROM drawer_streams WHERE id = ?

-- name: append_entry
INSERT INTO drawer_entries (stream, n, data, sum) VALUES (?, ?, ?, ?)

-- name: drawer_entries
SELECT n, data, sum FROM drawer_entries WHERE stream = ? AND n > ? AND n <= ? ORDER BY n

-- name: entries_size
SELECT ifnull(sum(length(data)), 0) FROM drawer_entries WHERE stream = ? AND n > ?

-- name: entry_sizes
SELECT n, length(data) FROM drawer_entries WHERE stream = ? AND n > ? ORDER BY n LIMIT ?

-- name: entry_sum
SELECT sum FROM drawer_entries WHERE stream = ? AND n = ?

-- name: pop_entry
DELETE FROM drawer_entries WHERE stream = ? AND n = ?

-- name: value_versions
SELECT key, version FROM drawer_values WHERE drawer = ? AND key IN (SELECT value FROM json_each(?))

-- name: put_value
INSERT INTO drawer_values (drawer, key, version, changed, data, sum) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (drawer, key) DO UPDATE SET
    version = excluded.version, changed = excluded.changed, data = excluded.data, sum = excluded.sum

-- name: remove_value
DELETE FROM drawer_values WHERE drawer = ? AND key = ?

-- name: values_by_key
SELECT key, version, changed, data, sum FROM drawer_values WHERE drawer = ? AND key IN (SELECT value FROM json_each(?))

-- name: values_by_key_size
SELECT ifnull(sum(length(data)), 0) FROM drawer_values WHERE drawer = ? AND key IN (SELECT value FROM json_each(?))

-- name: value_sizes
SELECT key, length(data) FROM drawer_values WHERE drawer = ? AND key > ? ORDER BY key LIMIT ?

-- name: values_first
-- With a second lower bound, SQLite would begin to search at the first one.
SELECT key, version, changed, data, sum FROM drawer_values
WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?

-- name: values_first_size
SELECT ifnull(sum(size), 0) FROM (
    SELECT length(data) AS size FROM drawer_values
    WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?
)

-- name: values_last
-- With a second lower bound, SQLite would begin to search at the first one.
SELECT key, version, changed, data, sum FROM drawer_values
WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?

-- name: values_last_size
SELECT ifnull(sum(size), 0) FROM (
    SELECT length(data) AS size FROM drawer_values
    WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?
)

-- name: drawer_keys
SELECT key FROM drawer_values WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key

-- name: clear_all_values
DELETE FROM drawer_values WHERE drawer = ?

-- name: clear_values
DELETE FROM drawer_values WHERE drawer = ? AND key >= ? AND key < ?

-- name: drawers
SELECT id, name, changed, version, keep_for, sum FROM drawers WHERE session = ? ORDER BY name

-- name: drawer_counts
SELECT
    (SELECT count(*) FROM drawer_streams WHERE drawer = ?1), (SELECT count(*) FROM drawer_values WHERE drawer = ?1)

-- name: drawer_sizes
SELECT
    (SELECT count(*) FROM drawer_streams WHERE drawer = ?1),
    (SELECT count(*) FROM drawer_values WHERE drawer = ?1),
    (SELECT ifnull(sum(length(note)), 0) FROM drawer_streams WHERE drawer = ?1)
    + (SELECT ifnull(sum(length(data)), 0) FROM drawer_values WHERE drawer = ?1)
    + (SELECT ifnull(sum(length(data)), 0) FROM drawer_entries
       WHERE stream IN (SELECT id FROM drawer_streams WHERE drawer = ?1))

-- name: stray_drawers
-- Rows whose drawer, stream or session does not exist. The session -1 stands for discarded streams.
SELECT 'drawer ' || id FROM drawers WHERE session > 0 AND NOT EXISTS (SELECT 1 FROM sessions WHERE key = session)
UNION ALL
SELECT 'stream ' || id FROM drawer_streams WHERE NOT EXISTS (SELECT 1 FROM drawers WHERE drawers.id = drawer)
UNION ALL
SELECT 'value ' || id FROM drawer_values WHERE NOT EXISTS (SELECT 1 FROM drawers WHERE drawers.id = drawer)
UNION ALL
SELECT 'entry ' || id FROM drawer_entries
WHERE NOT EXISTS (SELECT 1 FROM drawer_streams WHERE drawer_streams.id = drawer_entries.stream)

-- name: expiring_drawers
SELECT id, name, changed, version, keep_for, sum FROM drawers WHERE session = 0 AND keep_for IS NOT NULL ORDER BY id

-- name: expired_streams
SELECT id, stream, n, changed, note, last, sum FROM drawer_streams WHERE drawer = ? AND changed <= ? AND id > ?
ORDER BY id LIMIT ?

-- name: discard_stream
UPDATE drawer_streams SET drawer = ?, stream = ? WHERE id = ?

-- name: expired_values
SELECT key, length(data) FROM drawer_values WHERE drawer = ? AND changed <= ? AND key > ? ORDER BY key LIMIT ?

-- name: strip_entries
DELETE FROM drawer_entries WHERE id IN (
    SELECT drawer_entries.id FROM drawers JOIN drawer_streams ON drawer = drawers.id
        JOIN drawer_entries ON drawer_entries.stream = drawer_streams.id
    WHERE session = ?1 LIMIT ?2
) RETURNING id

-- name: strip_values
DELETE FROM drawer_values WHERE id IN (
    SELECT drawer_values.id FROM drawers JOIN drawer_values ON drawer = drawers.id WHERE session = ?1 LIMIT ?2
) RETURNING id

-- name: strip_streams
DELETE FROM drawer_streams WHERE id IN (
    SELECT drawer_streams.id FROM drawers JOIN drawer_streams ON drawer = drawers.id WHERE session = ?1 LIMIT ?2
) RETURNING id

-- name: strip_drawers
DELETE FROM drawers WHERE id IN (SELECT id FROM drawers WHERE session = ?1 LIMIT ?2) RETURNING id

-- name: drawer_weight
SELECT ifnull(sum(
    (SELECT ifnull(sum(length(data)), 0) FROM drawer_values WHERE drawer = drawers.id)
    + (SELECT ifnull(sum(length(note)), 0) FROM drawer_streams WHERE drawer = drawers.id)
    + (SELECT ifnull(sum(length(data)), 0) FROM drawer_entries
       WHERE stream IN (SELECT id FROM drawer_streams WHERE drawer = drawers.id))
), 0) FROM drawers WHERE session IN (SELECT value FROM json_each(?))

-- name: drawer_source
-- Whether a session exists whose drawers are copied.
SELECT key FROM sessions WHERE key = ? AND removing = 0

-- name: copy_drawers
INSERT INTO drawers (session, name, changed, version, keep_for, sum)
SELECT ?2, name, changed, version, keep_for, sum FROM drawers WHERE session = ?1

-- name: copy_streams
INSERT INTO drawer_streams (drawer, stream, n, changed, note, last, sum)
SELECT new.id, stream, n, drawer_streams.changed, note, last, drawer_streams.sum
FROM drawers AS old JOIN drawers AS new ON new.session = ?2 AND new.name = old.name
    JOIN drawer_streams ON drawer = old.id
WHERE old.session = ?1

-- name: copy_entries
INSERT INTO drawer_entries (stream, n, data, sum)
SELECT target.id, drawer_entries.n, data, drawer_entries.sum
FROM drawers AS old JOIN drawers AS new ON new.session = ?2 AND new.name = old.name
    JOIN drawer_streams AS source ON source.drawer = old.id
    JOIN drawer_streams AS target ON target.drawer = new.id AND target.stream = source.stream
    JOIN drawer_entries ON drawer_entries.stream = source.id
WHERE old.session = ?1

-- name: copy_values
INSERT INTO drawer_values (drawer, key, version, changed, data, sum)
SELECT new.id, key, drawer_values.version, drawer_values.changed, data, drawer_values.sum
FROM drawers AS old JOIN drawers AS new ON new.session = ?2 AND new.name = old.name
    JOIN drawer_values ON drawer = old.id
WHERE old.session = ?1

-- name: empty_entries
DELETE FROM drawer_entries WHERE stream IN (
    SELECT drawer_streams.id FROM drawer_streams JOIN drawers ON drawers.id = drawer WHERE session = ? AND name = ?
)

-- name: empty_streams
DELETE FROM drawer_streams WHERE drawer = (SELECT id FROM drawers WHERE session = ? AND name = ?)

-- name: empty_values
DELETE FROM drawer_values WHERE drawer = (SELECT id FROM drawers WHERE session = ? AND name = ?)

-- name: empty_drawer
DELETE FROM drawers WHERE session = ? AND name = ?
