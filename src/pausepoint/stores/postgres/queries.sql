-- The statements of the store in Postgres, by name. Bindings are written as in the SQLite store; `connection.py`
-- numbers them. Flags are 0 and 1.

-- part: leased
-- Whether an engine has a lease. Verbs divide by it: without a lease, the error rolls the transaction back, whose COMMIT
-- was sent together with the statement.
(state <> 'dead' AND lease_until > clock_timestamp())::int

-- part: stopped
-- Whether the pause of everything stops a session.
(ended IS NULL AND exempt < coalesce((SELECT round FROM standing_pause), 0))

-- part: asked
(pause_requested = 1 OR {stopped})

-- part: mode
CASE WHEN {stopped} AND (SELECT mode FROM standing_pause) = 'abort' THEN 'abort' ELSE pause_mode END

-- part: last_lifted
-- The last round of a pause of everything that was lifted.
coalesce((SELECT max(round) FROM pause_rounds WHERE lifted_at IS NOT NULL), 0)

-- part: open
-- Whether a row of `pauses` is open. A record of a pause of everything that was lifted counts as closed.
(closed_at IS NULL AND (standing = 0 OR standing = (SELECT epoch FROM standing_pause)))

-- part: own_frozen
-- Since when a pause of the session's own freezes its timers.
(SELECT min(at) FROM pauses
    WHERE session = key AND closed_at IS NULL AND standing = 0 AND kind = 'operator' AND "freeze" = 1)

-- part: noted
-- From when on a session was under the pause of everything of a row of `pause_rounds`, if it has a record of it.
(SELECT noted.at FROM pauses AS noted
    WHERE noted.session = key AND noted.standing = pause_rounds.epoch AND noted.closed_at IS NULL)

-- part: frozen
-- The frozen time, with that of lifted pauses of everything: `pausepoint.model.everything.frozen_by`.
frozen + CASE WHEN ended IS NULL AND exempt < {last_lifted} THEN coalesce((
    SELECT sum(greatest(until - since, 0)) FROM (
        SELECT least(max(lifted_at), coalesce({own_frozen}, max(lifted_at))) AS until,
            greatest(min(at), coalesce({noted}, min(at))) AS since
        FROM pause_rounds WHERE round > exempt AND lifted_at IS NOT NULL AND "freeze" = 1 GROUP BY epoch
    ) AS lifted
), 0)::bigint ELSE 0 END

-- part: frozen_since
-- Since when the timers are frozen: `pausepoint.model.everything.frozen_since`.
(SELECT min(since) FROM (
    SELECT {own_frozen} AS since
    UNION ALL
    SELECT greatest(at, coalesce({noted}, at)) FROM (
        SELECT min(at) AS at, epoch FROM pause_rounds
        WHERE round > exempt AND lifted_at IS NULL AND "freeze" = 1 AND ended IS NULL GROUP BY epoch
    ) AS pause_rounds
) AS frozen)

-- part: ready
-- The value of `ready_at` once no engine holds the session, as `pausepoint.model.sessions.ready_at` defines it. The
-- store suite, the store model and `verify` check that both agree.
CASE
    WHEN pause_requested = 1 OR ended IS NOT NULL OR removing = 1 OR guest = 1
        OR EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0) THEN NULL
    WHEN wakes_at IS NULL AND waiting IS NULL THEN 0
    ELSE wakes_at
END

-- part: mentions
-- Whether a session has the text where a person can see it. `lower` knows only the letters A to Z, as in the SQLite
-- store; `strpos` has no wildcards. A failure that is not JSON is damaged, and matches nothing.
(
    strpos(lower(session_id), lower(:text::text COLLATE "C")) > 0 OR strpos(lower(owner), lower(:text COLLATE "C")) > 0
    OR EXISTS (
        SELECT 1 FROM tagged WHERE tagged.session = sessions.key AND strpos(lower(tag), lower(:text COLLATE "C")) > 0
    )
    OR (failure IS NOT NULL AND is_json(failure) AND (
        strpos(lower(failure::jsonb ->> 'message'), lower(:text COLLATE "C")) > 0
        OR strpos(lower(failure::jsonb ->> 'type'), lower(:text COLLATE "C")) > 0
    ))
    OR key IN (SELECT session FROM pauses WHERE {open} AND strpos(lower(reason), lower(:text COLLATE "C")) > 0)
    OR (EXISTS (SELECT 1 FROM standing_pause WHERE strpos(lower(reason), lower(:text COLLATE "C")) > 0) AND {stopped})
)

-- part: by_session_id
session_id = :session_id

-- part: by_prefix
(session_id >= :prefix AND session_id <= :prefix || chr(1114109))

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
session_id = ANY (SELECT jsonb_array_elements_text(:ids::jsonb))

-- part: by_since
updated_at >= :since

-- part: by_until
updated_at <= :until

-- part: by_text
{mentions}

-- part: paused
EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0)

-- part: own_pause
(pause_requested = 1 OR {paused})

-- part: driven
holder = ANY (SELECT jsonb_array_elements_text(:alive::jsonb)::bigint)

-- part: status
-- The rules of `derive_status` in SQL, to count and filter sessions without reading each row. The store suite and the
-- store model check that both agree.
CASE
    WHEN ended = 'completed' THEN 'completed'
    WHEN ended = 'cancelled' THEN 'cancelled'
    WHEN {asked} OR {paused} THEN CASE WHEN {driven} THEN 'pausing' ELSE 'paused' END
    WHEN ended = 'failed' THEN 'failed'
    WHEN {driven} THEN 'running'
    WHEN wakes_at = 0 OR wakes_at <= :now THEN 'ready'
    WHEN waiting IS NOT NULL THEN 'waiting'
    WHEN wakes_at IS NOT NULL THEN 'sleeping'
    WHEN seq <= 1 THEN 'created'
    ELSE 'ready'
END

-- part: by_statuses
{status} = ANY (SELECT jsonb_array_elements_text(:statuses::jsonb))

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
-- The first condition is a range of the index; 0 is due even if the clock is before 1970.
wakes_at <= greatest(:now::bigint, 0) AND (wakes_at <= :now OR wakes_at = 0) AND wakes_at IS NOT NULL
    AND pause_requested = 0 AND guest = 0 AND removing = 0 AND (ended IS NULL OR ended = 'failed')
    AND workflow = ANY (SELECT jsonb_array_elements_text(:workflows::jsonb))

-- part: exempted
-- While everything is paused, only the few sessions that were resumed since can run. A condition follows.
WHERE exempt = :round AND exempt > 0 AND

-- part: most
-- The largest number that a column can hold.
9223372036854775807

-- part: spent_usd
-- What a session and its descendants have spent: the row, and what was not folded into it yet.
least(spent_usd + coalesce((SELECT sum(usd) FROM charges WHERE session = key), 0), {most})::bigint

-- part: spent_tokens
least(spent_tokens + coalesce((SELECT sum(tokens) FROM charges WHERE session = key), 0), {most})::bigint

-- part: spent_operations
least(spent_operations + coalesce((SELECT sum(operations) FROM charges WHERE session = key), 0), {most})::bigint

-- part: fact_columns
-- The facts about sessions, in the order of `SessionRow`.
    key, session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
    seq, key_frame, digest, step, visit, held_by_guard, ended, failure,
    pause_requested, pause_mode, cancel_requested, holder, fence, waiting, wakes_at,
    crashes, {spent_usd}, {spent_tokens}, {spent_operations}, budget_usd, budget_tokens, budget_operations,
    (SELECT count(*) FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0),
    progress, parent, keep_for, mail, {frozen},
    (SELECT above.session_id FROM sessions AS above WHERE above.key = sessions.parent) AS parent_id,
    kept_by, removing, given_sum, moved_sum, ready_at,
    CASE WHEN {stopped} THEN (SELECT mode FROM standing_pause) END, guest, signals_n,
    queue, priority, lane

-- name: owner_of
SELECT owner FROM sessions WHERE session_id = ?

-- name: facts
-- Callers add a WHERE.
SELECT {fact_columns} FROM sessions

-- name: end
-- Set how a session ended; NULL if a failed one goes on.
UPDATE sessions SET ended = ?, failure = ? WHERE key = ?

-- name: set_version
UPDATE sessions SET version = ? WHERE key = ?

-- name: session_id
SELECT session_id FROM sessions WHERE key = ?

-- name: release
-- What parks under the pause of everything is due once that is lifted.
UPDATE sessions SET holder = NULL, waiting = ?1,
    wakes_at = coalesce(?2, CASE WHEN {stopped} THEN 0 END) WHERE key = ?3

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
    WHEN mail = 1 AND EXISTS (
        SELECT 1 FROM inbox
        WHERE session = key AND kind IN ('answer', 'child', 'message') AND strpos(?1::text, kind) > 0
    ) THEN 0 ELSE ?2::bigint END
WHERE key = ?3

-- name: give_back
-- Release a session that this engine held when a commit failed, unless another engine has claimed it since.
UPDATE sessions SET holder = NULL, ready_at = {ready} WHERE key = ? AND fence = ? AND holder = ?

-- name: release_all
UPDATE sessions SET holder = NULL, ready_at = {ready} WHERE holder = ?

-- name: free
-- Release sessions whose engine died, and count the crash.
UPDATE sessions SET holder = NULL, crashes = crashes + 1, ready_at = {ready}
WHERE key = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint)

-- name: reckon
-- Store since when a session is ready. Every change of the facts behind it ends with this.
UPDATE sessions SET ready_at = CASE WHEN holder IS NULL THEN {ready} END WHERE key = ?

-- part: kinds
-- The queues, workflows and priorities of the sessions that are ready now or later. Each step jumps to the next kind in
-- the index, so the cost follows the number of kinds, not that of sessions.
kinds (queue, workflow, priority) AS (
    SELECT * FROM (
        SELECT queue, workflow, priority FROM sessions WHERE ready_at IS NOT NULL
        ORDER BY queue, workflow, priority LIMIT 1
    ) AS first
    UNION ALL
    SELECT following.queue, following.workflow, following.priority
    FROM kinds CROSS JOIN sessions AS following
    WHERE following.key = coalesce(
        (SELECT other.key FROM sessions AS other
            WHERE other.queue = kinds.queue AND other.workflow = kinds.workflow AND other.priority > kinds.priority
                AND other.ready_at IS NOT NULL ORDER BY other.priority LIMIT 1),
        (SELECT other.key FROM sessions AS other
            WHERE other.queue = kinds.queue AND other.workflow > kinds.workflow AND other.ready_at IS NOT NULL
            ORDER BY other.workflow, other.priority LIMIT 1),
        (SELECT other.key FROM sessions AS other
            WHERE other.queue > kinds.queue AND other.ready_at IS NOT NULL
            ORDER BY other.queue, other.workflow, other.priority LIMIT 1)
    )
)

-- name: ready_kinds
WITH RECURSIVE {kinds} SELECT queue, workflow, priority FROM kinds

-- name: ready
-- Ready sessions of one kind, those that have waited longest first, after a position.
SELECT ready_at, key, lane, owner FROM sessions
WHERE queue = :queue AND workflow = :workflow AND priority = :priority AND ready_at <= :now AND ready_at IS NOT NULL
    AND (ready_at, key) > (:after_at::bigint, :after_key::bigint) AND (:due::bigint = 0 OR wakes_at IS NOT NULL)
ORDER BY ready_at, key LIMIT :limit

-- name: ready_exempt
-- The few ready sessions that the pause of everything does not stop.
SELECT priority, ready_at, key, queue, workflow, lane, owner
FROM sessions WHERE exempt = :round AND exempt > 0 AND ready_at <= :now AND ready_at IS NOT NULL

-- part: due_candidates
SELECT priority, wakes_at, key, queue, workflow, lane, owner FROM sessions

-- part: by_keys
key IN (SELECT jsonb_array_elements_text(:keys::jsonb)::bigint)

-- name: at_work
-- How many sessions each engine holds, by what limits look at.
SELECT holder, queue, workflow, lane, owner, count(*) FROM sessions
WHERE holder IS NOT NULL AND guest = 0 GROUP BY holder, queue, workflow, lane, owner

-- name: ready_counts
-- How many sessions are ready now, by queue and workflow.
SELECT queue, workflow, count(*) FROM sessions
WHERE ready_at <= ? AND ready_at IS NOT NULL GROUP BY queue, workflow

-- name: everything
-- The pause of everything as one number: the round times two, plus one if it aborts. No row if it is not in effect.
SELECT round * 2 + (mode = 'abort')::int FROM standing_pause

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
UPDATE sessions SET exempt = greatest({last_lifted}, coalesce((
    SELECT above.exempt FROM sessions AS above WHERE above.key = sessions.parent
), 0))
WHERE key = ?

-- name: stopped_since
-- The pause of everything that stops a session, and since when; no row if none does, or if it is noted already.
SELECT reason, "by", mode, "freeze", epoch,
    (SELECT min(at) FROM pause_rounds WHERE pause_rounds.epoch = standing_pause.epoch AND round > exempt)
FROM sessions CROSS JOIN standing_pause WHERE key = ? AND {stopped} AND NOT EXISTS (
    SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = standing_pause.epoch
)

-- name: due_later
-- What parks under the pause of everything is due once that is lifted.
UPDATE sessions SET wakes_at = 0 WHERE key = ? AND wakes_at IS NULL AND waiting IS NULL AND ended IS NULL

-- name: not_due
-- A session that waits for nothing is no longer due: the engine that resumes it drives it.
UPDATE sessions SET wakes_at = NULL WHERE key = ? AND wakes_at = 0 AND waiting IS NULL

-- name: last_round
SELECT coalesce(max(round), 0) FROM pause_rounds

-- name: add_round
INSERT INTO pause_rounds (round, epoch, at, "freeze", asked) VALUES (?, ?, ?, ?, ?)

-- name: end_rounds
UPDATE pause_rounds SET lifted_at = ?, lifted_by = ? WHERE lifted_at IS NULL

-- name: rounds_agree
-- Whether the pause of everything is the last request that was not lifted.
SELECT (SELECT max(round) FROM pause_rounds WHERE lifted_at IS NULL)
    IS NOT DISTINCT FROM (SELECT round FROM standing_pause)

-- name: anybody_exempt
SELECT EXISTS (SELECT 1 FROM sessions WHERE exempt = ? AND exempt > 0 AND removing = 0)

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
UPDATE sessions SET mail = EXISTS (SELECT 1 FROM inbox WHERE session = key)::int WHERE key = ?

-- name: thaw
UPDATE sessions SET frozen = 0, exempt = greatest(exempt, {last_lifted}) WHERE key = ?

-- name: charge_ancestors
-- A parent never changes, so the ancestors need no lock.
WITH RECURSIVE up (key) AS (
    SELECT parent FROM sessions WHERE key = ?1 AND parent IS NOT NULL
    UNION
    SELECT sessions.parent FROM up JOIN sessions USING (key) WHERE sessions.parent IS NOT NULL
)
INSERT INTO charges (session, usd, tokens, operations) SELECT key, ?2, ?3, ?4 FROM up

-- name: fold_charges
-- Add up to ?1 charges to the rows of their sessions, without those that a verb has locked. Charges of sessions that do
-- not exist are deleted.
WITH charged AS MATERIALIZED (
    SELECT DISTINCT session FROM (SELECT session FROM charges LIMIT ?1) AS first_ones
), locked AS MATERIALIZED (
    SELECT key FROM sessions WHERE key IN (SELECT session FROM charged) ORDER BY key FOR UPDATE SKIP LOCKED
), folded AS (
    DELETE FROM charges WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM charges
        WHERE session IN (SELECT key FROM locked) OR session IN (
            SELECT session FROM charged WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE key = charged.session)
        )
        LIMIT ?1
    )) RETURNING session, usd, tokens, operations
)
UPDATE sessions SET
    spent_usd = least(spent_usd + total.usd, {most}), spent_tokens = least(spent_tokens + total.tokens, {most}),
    spent_operations = least(spent_operations + total.operations, {most})
FROM (
    SELECT session, sum(usd) AS usd, sum(tokens) AS tokens, sum(operations) AS operations
    FROM folded GROUP BY session
) AS total
WHERE key = total.session

-- name: any_charges
SELECT EXISTS (SELECT 1 FROM charges)

-- name: purses
-- Spending and budget of a session and its ancestors.
WITH RECURSIVE up (key) AS (
    VALUES (?::bigint)
    UNION
    SELECT sessions.parent FROM up JOIN sessions USING (key) WHERE sessions.parent IS NOT NULL
)
SELECT session_id, {spent_usd}, {spent_tokens}, {spent_operations}, budget_usd, budget_tokens, budget_operations
FROM up JOIN sessions USING (key)
WHERE budget_usd IS NOT NULL OR budget_tokens IS NOT NULL OR budget_operations IS NOT NULL
ORDER BY key DESC

-- name: next_wake
SELECT min(wakes_at) FROM sessions
WHERE wakes_at > :now AND wakes_at IS NOT NULL AND wakes_at <> 0 AND pause_requested = 0 AND guest = 0 AND removing = 0
    AND workflow = ANY (SELECT jsonb_array_elements_text(:workflows::jsonb))

-- name: waking
-- Sessions that wake up after a time, the earliest first. Callers put the facts before it.
WHERE wakes_at > :now AND wakes_at IS NOT NULL AND pause_requested = 0 AND guest = 0 AND removing = 0
    AND (:owner::text IS NULL OR owner = :owner) AND ended IS NULL
    AND NOT EXISTS (SELECT 1 FROM pauses WHERE session = sessions.key AND closed_at IS NULL AND standing = 0)
ORDER BY wakes_at, key LIMIT :limit

-- name: open_pause
INSERT INTO pauses (
    session, id, kind, reason, "by", at, step, mode, "freeze", closed_at, closed_by, standing, took_effect_at, opened_sum
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: took_effect
-- A session has parked because of its own pauses.
UPDATE pauses SET took_effect_at = ?
WHERE session = ? AND closed_at IS NULL AND kind = 'operator' AND standing = 0 AND took_effect_at IS NULL

-- name: driven
-- The engines with sessions that another request to pause everything would stop, and how many.
SELECT holder, count(*) FROM sessions
WHERE holder IS NOT NULL AND ended IS NULL AND removing = 0
    AND exempt >= coalesce((SELECT round FROM standing_pause), 0)
GROUP BY holder

-- name: stopping
-- How many sessions the pause of everything asked to stop, and the longest time that one of them took.
SELECT (SELECT sum(asked)::bigint FROM pause_rounds WHERE pause_rounds.epoch = standing_pause.epoch),
    (SELECT max(pauses.took_effect_at - pauses.at) FROM pauses
        WHERE pauses.standing = standing_pause.epoch AND pauses.took_effect_at IS NOT NULL)
FROM standing_pause

-- name: close_pause
UPDATE pauses SET closed_at = ?, closed_by = ?, closed_sum = ? WHERE session = ? AND id = ? AND closed_at IS NULL

-- name: close_all_pauses
UPDATE pauses SET closed_at = ?, closed_by = ?, closed_sum = ? WHERE session = ? AND {open}

-- part: new_session
INSERT INTO sessions (
    session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
    seq, key_frame, digest, step, visit, holder, ready_at, fence, budget_usd, signals_digest, parent, keep_for,
    held_by_guard, given_sum, moved_sum, budget_tokens, budget_operations, guest, queue, priority, lane, wakes_at, exempt
)
SELECT
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
    ?25, ?26, ?27, ?28, ?29, ?30, ?31,
    greatest({last_lifted}, coalesce((SELECT above.exempt FROM sessions AS above WHERE above.key = ?20), 0))

-- name: create
{new_session} ON CONFLICT (session_id) DO NOTHING RETURNING key

-- part: undecided
-- Whether a verb that takes sessions need not ask for the pause of everything or for slots.
(NOT EXISTS (SELECT 1 FROM standing_pause) AND NOT EXISTS (SELECT 1 FROM limits))

-- name: known_plan
-- Until the end of the transaction, use the plan of a prepared statement. To plan a long one takes milliseconds, and its
-- bindings make no difference.
SET LOCAL plan_cache_mode = force_generic_plan

-- name: create_at_once
-- A new session without a parent, its records and tags, and the mark of the engine. Nothing is written if something has
-- to be decided first: the last column is 0 then.
WITH made AS ({new_session} WHERE {undecided} ON CONFLICT (session_id) DO NOTHING RETURNING *),
appended AS (
    INSERT INTO log (session, seq, parent, kind, step, visit, at, payload, salt, body, digest)
    SELECT made.key, r.* FROM made CROSS JOIN unnest(
        ?32::bigint[], ?33::bigint[], ?34::text[], ?35::text[], ?36::bigint[], ?37::bigint[],
        ?38::bytea[], ?39::bytea[], ?40::bytea[], ?41::bytea[]
    ) AS r
),
labelled AS (
    INSERT INTO tagged (tag, at, session)
    SELECT jsonb_array_elements_text(tags::jsonb), created_at, key FROM made ON CONFLICT DO NOTHING
),
marked AS (
    UPDATE engines SET mark = ?42::text || ' ' || made.key, workflows = ?43, queues = ?44 FROM made
    WHERE id = ?45 AND attempt <= ?47
    RETURNING {leased} AS leased, pg_notify(?46, made.key::text)
)
SELECT {fact_columns},
    1 / CASE WHEN key IS NULL THEN 1 ELSE coalesce((SELECT leased FROM marked), 0) END,
    {undecided}::int
FROM (SELECT 1) AS always LEFT JOIN made AS sessions ON true

-- name: tag
INSERT INTO tagged (tag, at, session)
SELECT jsonb_array_elements_text(tags::jsonb), created_at, key FROM sessions WHERE key = ?
ON CONFLICT DO NOTHING

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
SELECT id, reason, "by", at, mode, "freeze", epoch, round, sum FROM standing_pause

-- name: let_stand
INSERT INTO standing_pause (n, id, reason, "by", at, mode, "freeze", epoch, round, sum)
VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (n) DO UPDATE SET id = excluded.id, reason = excluded.reason, "by" = excluded."by", at = excluded.at,
    mode = excluded.mode, "freeze" = excluded."freeze", epoch = excluded.epoch, round = excluded.round, sum = excluded.sum

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
SELECT key FROM sessions
WHERE cancel_requested = 1 AND (ended IS NULL OR ended = 'failed') AND removing = 0 ORDER BY key

-- name: signals_head
SELECT session_id, seq, signals_n, signals_digest FROM sessions WHERE key = ?

-- name: append_signal
INSERT INTO signals (session, n, after, kind, "by", at, payload, digest, salt, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: move_signals
UPDATE sessions SET signals_n = ?, signals_digest = ? WHERE key = ?

-- name: deliver
INSERT INTO inbox (session, n, kind, about) VALUES (?, ?, ?, ?)

-- name: has_mail
-- The session becomes due if it waits for this kind of signal.
UPDATE sessions SET mail = 1,
    wakes_at = CASE WHEN strpos(coalesce(waiting, ''), ?::text) > 0 THEN 0 ELSE wakes_at END
WHERE key = ?

-- name: mail
SELECT n FROM inbox WHERE session = ? ORDER BY n LIMIT nullif(?::bigint, -1)

-- name: mail_of_kind
SELECT n FROM inbox WHERE session = ? AND kind = ? ORDER BY n LIMIT nullif(?::bigint, -1)

-- name: mail_about
SELECT n FROM inbox WHERE session = ? AND kind = ? AND about = ? ORDER BY n LIMIT nullif(?::bigint, -1)

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
INSERT INTO sent (root, once, session, n) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: key_frame_before
SELECT seq FROM log WHERE session = ? AND kind = 'key' AND seq <= ? ORDER BY seq DESC LIMIT 1

-- name: signals
SELECT n, after, kind, "by", at, payload, digest, salt, body FROM signals WHERE session = ? AND n BETWEEN ? AND ? ORDER BY n

-- name: changed_stones
SELECT n, session_id, workflow, owner, status, created_at, removed_at, "by", reason, records, digest, sum
FROM tombstones WHERE n > ? ORDER BY n LIMIT ?

-- name: last_stone
SELECT n FROM tombstones ORDER BY n DESC LIMIT 1

-- name: stone_point
SELECT digest FROM tombstones WHERE n = ?

-- name: ancestors
-- The ids of a session and its ancestors, the session first.
WITH RECURSIVE up (key, depth) AS (
    SELECT ?1::bigint, 0
    UNION ALL
    SELECT sessions.parent, depth + 1 FROM up JOIN sessions USING (key)
    WHERE sessions.parent IS NOT NULL AND sessions.parent < sessions.key
)
SELECT session_id FROM up JOIN sessions USING (key) ORDER BY depth

-- name: flags
SELECT key, fence, {asked}::int, {mode}, cancel_requested, mail
FROM sessions WHERE key = ?

-- name: pauses
-- With the lift of the pause of everything that a record is part of.
SELECT id, kind, reason, "by", pauses.at, step,
    CASE WHEN {open} AND standing > 0 THEN (SELECT mode FROM standing_pause) ELSE mode END,
    pauses."freeze", closed_at, closed_by, (standing > 0)::int, took_effect_at, opened_sum, closed_sum, lifted_at,
    lifted_by
FROM pauses LEFT JOIN pause_rounds ON round = standing WHERE session = ? AND ({open} OR ? = 0) ORDER BY n

-- name: pause_flag
SELECT pause_requested, pause_mode, updated_at, {stopped}::int,
    (SELECT min(at) FROM pause_rounds WHERE round > exempt AND lifted_at IS NULL)
FROM sessions WHERE key = ?

-- name: open_pauses
-- The open pauses of several sessions. The columns are those of `pauses` after the session.
SELECT session, id, kind, reason, "by", pauses.at, step,
    CASE WHEN standing > 0 THEN (SELECT mode FROM standing_pause) ELSE mode END,
    pauses."freeze", closed_at, closed_by, (standing > 0)::int, took_effect_at, opened_sum, closed_sum, lifted_at,
    lifted_by
FROM pauses LEFT JOIN pause_rounds ON round = standing
WHERE session = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint) AND {open} ORDER BY n

-- name: pause_flags
-- The key, and then as in `pause_flag`.
SELECT key, pause_requested, pause_mode, updated_at, {stopped}::int,
    (SELECT min(at) FROM pause_rounds WHERE round > exempt AND lifted_at IS NULL)
FROM sessions WHERE key = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint) AND removing = 0

-- name: engine
SELECT pid, host, started_at FROM engines WHERE id = ?

-- name: leave_mark
-- Also what the engine drives: this row is written anyway. If ?5 is 1 and the engine has no lease, the division by zero
-- rolls the transaction back: its COMMIT was sent together with this statement.
WITH marked AS (
    UPDATE engines SET mark = ?1, workflows = ?2, queues = ?3 WHERE id = ?4 RETURNING {leased} AS leased
)
SELECT 1 / greatest(1 - ?5, coalesce((SELECT leased FROM marked), 0))

-- name: mark
SELECT mark FROM engines WHERE id = ? FOR UPDATE

-- name: give_up_attempts
-- Statements of earlier attempts that the server has not begun yet write nothing from now on.
UPDATE engines SET attempt = ? WHERE id = ?

-- name: blank_signals
UPDATE signals SET payload = '', salt = '' WHERE session = ?
    AND n = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint)

-- name: forget_files
-- Files that were added by redacted signals.
DELETE FROM files WHERE session = ? AND n = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint)

-- name: blank_mail
UPDATE inbox SET about = NULL WHERE session = ?
    AND n = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint)

-- name: unname_blob
DELETE FROM names WHERE session = ? AND hash = ?

-- name: doubtful
-- The facts needed to remove a damaged session. The 1 says that table and index agree on its id.
SELECT session_id, 1, holder,
    (SELECT above.session_id FROM sessions AS above WHERE above.key = damaged.parent),
    workflow, owner, created_at, seq, digest
FROM sessions AS damaged WHERE key = ?

-- name: mark_removing
UPDATE sessions SET holder = NULL, ready_at = NULL, removing = 1, removal = ? WHERE key = ?

-- name: removal
SELECT removal FROM sessions WHERE key = ? AND removing = 1

-- name: removals
-- Children before parents.
SELECT key, removal FROM sessions WHERE removing = 1 ORDER BY key DESC

-- name: strip_signals
DELETE FROM signals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM signals WHERE session = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_inbox
DELETE FROM inbox WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM inbox WHERE session = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_sent
DELETE FROM sent WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM sent WHERE root = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_files
DELETE FROM files WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM files WHERE session = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_pauses
DELETE FROM pauses WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pauses WHERE session = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_names
DELETE FROM names WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM names WHERE session = ?1 LIMIT ?2
)) RETURNING 1

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
    AND greatest(updated_at, coalesce(wakes_at, 0))
        + coalesce(keep_for, CASE WHEN ended IN ('completed', 'cancelled') THEN ?::bigint END) <= ?
    AND key > ?
ORDER BY key LIMIT ?

-- name: tombstones
-- In the order of `Tombstone`. Callers add a WHERE.
SELECT session_id, workflow, owner, status, created_at, removed_at, "by", reason, records, digest, sum FROM tombstones

-- name: look_at_blobs
SELECT id, size, EXISTS (SELECT 1 FROM names WHERE names.hash = blob.hash)
FROM (SELECT id, hash, length(data)::bigint AS size FROM blobs WHERE id > ? ORDER BY id LIMIT ?) AS blob

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
GROUP BY log.session HAVING count(*) IS DISTINCT FROM max(sessions.seq)

-- name: drop_unnamed_blob
DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM names WHERE names.hash = ?1)

-- name: import_session
-- A session from another store. No engine holds it.
INSERT INTO sessions (
    session_id, parent, workflow, version, owner, tags, input_digest, created_at, updated_at, keep_for,
    seq, key_frame, digest, step, visit, held_by_guard, ended, failure,
    pause_requested, pause_mode, cancel_requested, fence, waiting, wakes_at, mail, frozen, crashes,
    spent_usd, spent_tokens, spent_operations, budget_usd, budget_tokens, budget_operations,
    progress, signals_n, signals_digest, given_sum, moved_sum, guest, queue, priority, lane, exempt
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26,
    ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42,
    ?43, {last_lifted}
)
RETURNING key

-- name: hidden
-- In SQLite, a session that is in the table and not in the index. Postgres checks its pages on its own.
SELECT 1 FROM sessions WHERE session_id = ?1 AND false

-- name: id_is_taken
SELECT EXISTS (SELECT 1 FROM sessions WHERE session_id = ?)

-- name: import_pause
INSERT INTO pauses (
    session, id, kind, reason, "by", at, step, mode, "freeze", closed_at, closed_by, standing, took_effect_at, opened_sum,
    closed_sum
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: value_weight
-- The size of the large values that only these sessions reference.
SELECT coalesce(sum(length(data)), 0)::bigint FROM blobs
WHERE hash IN (SELECT hash FROM names WHERE session = ANY (SELECT jsonb_array_elements_text(?1::jsonb)::bigint))
    AND NOT EXISTS (
        SELECT 1 FROM names
        WHERE names.hash = blobs.hash
            AND names.session NOT IN (SELECT jsonb_array_elements_text(?1::jsonb)::bigint)
    )

-- name: file_weight
-- The size of these sessions' files, as recorded when they were added.
SELECT coalesce(sum((convert_from(payload, 'UTF8')::jsonb ->> 'size')::bigint), 0)::bigint FROM signals
WHERE session = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint) AND kind = 'file' AND length(payload) > 0

-- name: engines
SELECT id, pid, host, started_at, workflows, queues FROM engines ORDER BY id

-- name: tally_ended
-- How many sessions have completed or were cancelled, by workflow. Callers add a condition and a GROUP BY.
SELECT workflow, ended = 'completed', count(*) FROM sessions
WHERE (ended = 'completed' OR ended = 'cancelled') AND removing = 0

-- name: held_sessions
SELECT holder, session_id FROM sessions WHERE holder IS NOT NULL AND removing = 0 ORDER BY created_at, key

-- name: questions
-- Questions with their session, their root session, the record that asks, and since when their timers are frozen.
SELECT
    questions.n, questions.session, questions.root, questions.id, questions.key, questions.seq, questions.status,
    questions.version, seen, questions.created_at, questions.updated_at, expires_at, answer, told, refused,
    questions.sum, own.session_id, top.session_id, top.workflow, top.owner, log.step, log.payload, log.salt, log.body,
    own.frozen, own.failure, own.ended, own.frozen_since
FROM questions
    JOIN (
        SELECT key, session_id, {frozen} AS frozen, {frozen_since} AS frozen_since, failure, ended, removing
        FROM sessions
    ) AS own
        ON own.key = questions.session AND own.removing = 0
    JOIN (SELECT key, session_id, workflow, owner FROM sessions) AS top ON top.key = questions.root
    LEFT JOIN log ON log.session = questions.session AND log.seq = questions.seq

-- name: tally_questions
-- Count questions by current status. A waiting question has expired if its time is over; time under frozen timers does
-- not count. Callers add a WHERE and a GROUP BY.
SELECT
    CASE WHEN status = 'WAITING_USER_INPUT' AND expires_at + own.frozen + coalesce(
            CASE WHEN own.frozen_since IS NOT NULL
                THEN greatest(:now - greatest(own.frozen_since, questions.updated_at), 0) END, 0
        ) <= :now THEN 'EXPIRED' ELSE status END AS status_now,
    count(*)
FROM questions JOIN (
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
    session, root, id, key, seq, status, version, seen, created_at, updated_at, expires_at, answer, told, refused, sum
)
VALUES (?1, ?2, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
ON CONFLICT (id) DO UPDATE SET
    seq = excluded.seq, status = excluded.status, version = excluded.version,
    seen = excluded.seen, updated_at = excluded.updated_at, expires_at = excluded.expires_at, answer = excluded.answer,
    told = 0, sum = excluded.sum

-- name: question_before
SELECT n, session, root, id, key, seq, status, version, seen, created_at, updated_at, expires_at, answer, told, refused,
    sum
FROM questions WHERE id = ?

-- name: change_question
UPDATE questions SET status = ?, updated_at = ?, expires_at = ?, answer = ?, told = ?, refused = ?, sum = ? WHERE n = ?

-- name: strip_questions
DELETE FROM questions WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM questions WHERE session = ?1 LIMIT ?2
)) RETURNING 1

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
    WHERE signals.kind = 'file' AND length(payload) > 0 AND removing = 0
), known (session, n) AS (
    SELECT session, n FROM files LEFT JOIN sessions ON sessions.key = session WHERE coalesce(removing, 0) = 0
)
(SELECT * FROM brought EXCEPT SELECT * FROM known) UNION (SELECT * FROM known EXCEPT SELECT * FROM brought)

-- name: stray_sent
-- Rows of `sent` without a signal, and messages with a key without a row. A redacted message has lost its key, and a
-- damaged one is reported with its session.
WITH keyed (session, n) AS (
    SELECT session, n FROM signals JOIN sessions ON sessions.key = session
    WHERE signals.kind IN ('message', 'answer') AND position('"once":'::bytea IN payload) > 0 AND removing = 0
        AND CASE WHEN is_json(encode(payload, 'escape'))
            THEN encode(payload, 'escape')::jsonb ->> 'once' END IS NOT NULL
)
SELECT sent.session, sent.n FROM sent LEFT JOIN signals USING (session, n) WHERE signals.session IS NULL
UNION (SELECT * FROM keyed EXCEPT SELECT session, n FROM sent)

-- name: stray_tags
-- Sessions whose tags or times differ from those in `tagged`, and rows of `tagged` without a session. The checksum of
-- the facts covers tags that are not JSON.
WITH own (session, tag, at) AS (
    SELECT sessions.key, jsonb_array_elements_text(CASE WHEN is_json(tags) THEN tags ELSE '[]' END::jsonb),
        created_at
    FROM sessions
)
SELECT session FROM (SELECT * FROM own EXCEPT SELECT session, tag, at FROM tagged) AS missing
UNION SELECT session FROM (SELECT session, tag, at FROM tagged EXCEPT SELECT * FROM own) AS other

-- name: stray_questions
-- Questions without a session.
SELECT n FROM questions WHERE session NOT IN (SELECT key FROM sessions) OR root NOT IN (SELECT key FROM sessions)

-- name: request
SELECT key, digest, answer, until, holder, took_effect, sum FROM remembered WHERE key = ?

-- name: request_to_change
-- Locked: the engine that carries a request out, and one that takes its key over, must see each other.
SELECT key, digest, answer, until, holder, took_effect, sum FROM remembered WHERE key = ? FOR UPDATE

-- name: keep_request
INSERT INTO remembered (key, digest, answer, until, holder, took_effect, sum) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, answer = excluded.answer, until = excluded.until,
    holder = excluded.holder, took_effect = excluded.took_effect, sum = excluded.sum

-- name: forget_request
-- A request that took effect must be answered instead.
DELETE FROM remembered WHERE key = ? AND holder = ? AND answer IS NULL AND took_effect = 0

-- name: keep_effect
INSERT INTO effects (request, session) SELECT n, ?1::bigint FROM remembered WHERE key = ?2
ON CONFLICT DO NOTHING

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
    document = excluded.document, seen_at = greatest(descriptions.seen_at, excluded.seen_at)

-- name: forget_old_descriptions
DELETE FROM descriptions WHERE n IN (
    SELECT n FROM descriptions WHERE workflow = ? AND version = ? ORDER BY seen_at DESC, n DESC OFFSET ?
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

-- name: lock_request
-- One engine at a time decides about a request by key.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' request ' || ?, 0))

-- name: skip_locked
-- Lock those of some ready sessions that no other transaction has locked.
SELECT key FROM sessions WHERE key = ANY (?::bigint[]) AND ready_at IS NOT NULL ORDER BY key FOR UPDATE SKIP LOCKED

-- name: take_at_once
-- Take ready sessions, in the order of `pausepoint.model.queues`, without those that others have locked, and leave the
-- engine's mark with their keys. Nothing is taken if something has to be decided first: a limit, the pause of everything,
-- a dead engine, a session that an engine keeps in memory, a record of a lifted pause to close, or a second window.
-- The last column is then 1, if there may be something to take. The LIMIT of `locked` keeps every plan from reading all
-- sessions.
WITH RECURSIVE {kinds},
candidates AS MATERIALIZED (
    SELECT found.*, row_number() OVER (PARTITION BY found.priority ORDER BY found.ready_at, found.key) AS place
    FROM kinds CROSS JOIN LATERAL (
        SELECT priority, ready_at, key, lane, EXISTS (
                SELECT 1 FROM unnest(:skipped::bigint[], :at::bigint[]) AS skip (key, seq)
                WHERE skip.key = sessions.key AND skip.seq = sessions.seq
            ) AS skipped,
            kept_by IS NOT NULL OR (exempt < {last_lifted} AND EXISTS (
                SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing > 0
            )) AS special
        FROM sessions
        WHERE queue = kinds.queue AND workflow = kinds.workflow AND priority = kinds.priority
            AND ready_at <= :now AND ready_at IS NOT NULL
        ORDER BY ready_at, key LIMIT :window::bigint + 1
    ) AS found
    WHERE kinds.workflow = ANY (:workflows::text[]) AND (:queues::text[] IS NULL OR kinds.queue = ANY (:queues))
),
at_work AS (
    SELECT lane, count(*) AS n FROM sessions WHERE holder IS NOT NULL AND guest = 0 AND (
        SELECT min(lane) IS DISTINCT FROM max(lane) OR count(lane) NOT IN (0, count(*)) FROM candidates
    ) GROUP BY lane
),
numbered AS (
    SELECT candidates.*, md5(coalesce(lane, '') || ' ' || :now) COLLATE "C" AS lot,
        row_number() OVER (PARTITION BY priority, lane ORDER BY ready_at, key) AS n
    FROM candidates WHERE place <= :window
),
turns AS MATERIALIZED (
    SELECT numbered.*,
        row_number() OVER (ORDER BY priority, numbered.n + coalesce(at_work.n, 0), lot, ready_at, key) AS turn
    FROM numbered LEFT JOIN at_work
        ON coalesce(at_work.lane, '') = coalesce(numbered.lane, '') AND (at_work.lane IS NULL) = (numbered.lane IS NULL)
),
outlook AS MATERIALIZED (
    SELECT EXISTS (
            SELECT 1 FROM engines
            WHERE (state = 'dead' OR lease_until <= clock_timestamp() - :spared::float8 * interval '1 second'
                    OR lease_until > clock_timestamp() + :longest::float8 * interval '1 second')
                AND EXISTS (SELECT 1 FROM sessions WHERE holder = engines.id)
        ) AS dead,
        EXISTS (SELECT 1 FROM turns WHERE NOT skipped) AS ready,
        EXISTS (SELECT 1 FROM turns WHERE NOT skipped AND special) AS special,
        (SELECT min(priority) FROM candidates WHERE place > :window) AS brim
),
locked AS MATERIALIZED (
    SELECT sessions.key AS locked, turn, waiting AS waited, wakes_at AS woke_at, sessions.ready_at AS was_ready_at
    FROM (SELECT key, turn FROM turns WHERE NOT skipped ORDER BY turn LIMIT 1000) AS turns
        JOIN sessions ON sessions.key = turns.key
    WHERE {undecided} AND (SELECT NOT dead AND NOT special AND (brim IS NULL OR :limit <= (
            SELECT count(*) FROM turns WHERE NOT skipped AND priority <= brim
        )) FROM outlook)
        AND sessions.ready_at <= :now AND holder IS NULL AND kept_by IS NULL AND removing = 0
        AND NOT EXISTS (SELECT 1 FROM pauses WHERE session = sessions.key AND closed_at IS NULL AND standing = 0)
    ORDER BY turn LIMIT :limit FOR UPDATE OF sessions SKIP LOCKED
),
taken AS (
    UPDATE sessions SET holder = :me, fence = fence + 1, moved_sum = moved_sum + 1, waiting = NULL, wakes_at = NULL,
        ready_at = NULL, frozen = {frozen}, exempt = greatest(exempt, {last_lifted})
    FROM locked WHERE key = locked RETURNING *
),
marked AS (
    UPDATE engines SET workflows = :drives, queues = :served,
        mark = :mark::text || (SELECT string_agg(' ' || key, '' ORDER BY turn) FROM taken)
    WHERE id = :me AND attempt <= :attempt AND EXISTS (SELECT 1 FROM taken)
    RETURNING {leased} AS leased, pg_notify(:channel, (SELECT string_agg(key::text, ',') FROM taken))
)
SELECT {fact_columns}, waited, woke_at, was_ready_at,
    1 / CASE WHEN key IS NULL THEN 1 ELSE coalesce((SELECT leased FROM marked), 0) END,
    (key IS NULL AND (SELECT dead OR CASE WHEN EXISTS (SELECT 1 FROM standing_pause) THEN EXISTS (
        SELECT 1 FROM sessions WHERE exempt = (SELECT round FROM standing_pause) AND exempt > 0
            AND ready_at <= :now AND ready_at IS NOT NULL
    ) ELSE ready END FROM outlook))::int
FROM (SELECT 1) AS always LEFT JOIN taken AS sessions ON true ORDER BY turn

-- name: untake
-- Give back a session that was just taken and is damaged, as it was.
UPDATE sessions SET holder = NULL, fence = fence - 1, moved_sum = moved_sum - 1, waiting = ?, wakes_at = ?, ready_at = ?
WHERE key = ? AND holder = ?

-- name: leased_holders
-- The engines that hold sessions and whose lease has not ended.
SELECT id, boot FROM engines
WHERE state <> 'dead' AND lease_until > clock_timestamp() - ?::float8 * interval '1 second'
    AND EXISTS (SELECT 1 FROM sessions WHERE holder = engines.id)

-- name: keys
SELECT session_id, key FROM sessions WHERE session_id = ANY (?::text[])

-- name: holders
SELECT DISTINCT holder FROM sessions WHERE holder IS NOT NULL

-- name: place
-- A session's position, holder and requests, and whether it has an end that a move takes back.
SELECT
    key, seq, fence, holder, 0, pause_requested, pause_mode, cancel_requested, mail, coalesce(ended, failure),
    (SELECT round * 2 + (mode = 'abort')::int FROM standing_pause)
FROM sessions WHERE key = ?

-- part: moves
-- The moves of several sessions, one each, with the requests from outside as they are then. A session that has moved
-- on, or that this engine no longer holds, is left out.
UPDATE sessions AS s SET
    seq = v.seq, key_frame = v.key_frame, digest = v.digest, updated_at = greatest(s.updated_at, v.updated_at),
    step = v.step, visit = v.visit, held_by_guard = v.held_by_guard, ended = NULL, failure = NULL,
    crashes = s.crashes * v.keep_crashes, spent_usd = s.spent_usd + v.usd, spent_tokens = s.spent_tokens + v.tokens,
    spent_operations = s.spent_operations + v.operations, progress = v.progress, moved_sum = v.moved_sum
FROM unnest(
    ?1::bigint[], ?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::bigint[], ?6::bytea[], ?7::bigint[], ?8::text[],
    ?9::bigint[], ?10::bigint[], ?11::bigint[], ?12::bigint[], ?13::bigint[], ?14::bigint[], ?15::text[], ?16::bigint[]
) AS v (key, fence, base, seq, key_frame, digest, updated_at, step, visit, held_by_guard, keep_crashes, usd, tokens,
    operations, progress, moved_sum)
WHERE s.key = v.key AND s.fence = v.fence AND s.seq = v.base AND s.holder = ?17
RETURNING s.key, s.pause_requested, s.pause_mode, s.cancel_requested, s.mail, s.exempt, s.seq

-- name: move_all
-- Moves and appends in one statement: the records of sessions that did not move are not written.
WITH moved AS ({moves}), appended AS (
    INSERT INTO log (session, seq, parent, kind, step, visit, at, payload, salt, body, digest)
    SELECT r.session, r.seq, r.parent, r.kind, r.step, r.visit, r.at, r.payload, r.salt, r.body, r.digest
    FROM unnest(
        ?18::bigint[], ?19::bigint[], ?20::bigint[], ?21::text[], ?22::text[], ?23::bigint[], ?24::bigint[],
        ?25::bytea[], ?26::bytea[], ?27::bytea[], ?28::bytea[]
    ) AS r (session, seq, parent, kind, step, visit, at, payload, salt, body, digest)
        JOIN moved ON moved.key = r.session
)
SELECT key, pause_requested, pause_mode, cancel_requested, mail, exempt,
    (SELECT round * 2 + (mode = 'abort')::int FROM standing_pause)
FROM moved

-- name: move
-- The same for one session and one record. The plan of this statement is much cheaper.
WITH moved AS (
    UPDATE sessions SET
        seq = ?4, key_frame = ?5, digest = ?6, updated_at = greatest(updated_at, ?7), step = ?8, visit = ?9,
        held_by_guard = ?10, ended = NULL, failure = NULL, crashes = crashes * ?11, spent_usd = spent_usd + ?12,
        spent_tokens = spent_tokens + ?13, spent_operations = spent_operations + ?14, progress = ?15, moved_sum = ?16
    WHERE key = ?1 AND fence = ?2 AND seq = ?3 AND holder = ?17
    RETURNING key, pause_requested, pause_mode, cancel_requested, mail, exempt
), appended AS (
    INSERT INTO log (session, seq, parent, kind, step, visit, at, payload, salt, body, digest)
    SELECT key, ?19::bigint, ?20::bigint, ?21::text, ?22::text, ?23::bigint, ?24::bigint, ?25::bytea, ?26::bytea,
        ?27::bytea, ?28::bytea
    FROM moved
)
SELECT key, pause_requested, pause_mode, cancel_requested, mail, exempt,
    (SELECT round * 2 + (mode = 'abort')::int FROM standing_pause)
FROM moved

-- name: lock
-- Lock sessions in ascending order, as every verb does before it reads: so two verbs never wait for each other.
SELECT key FROM sessions WHERE key = ANY (?::bigint[]) ORDER BY key FOR UPDATE

-- name: line_of
-- The keys of a session, its ancestors and its descendants.
WITH RECURSIVE up (key, parent) AS (
    SELECT key, parent FROM sessions WHERE key = ?1
    UNION
    SELECT sessions.key, sessions.parent FROM up JOIN sessions ON sessions.key = up.parent
), down (key) AS (
    SELECT ?1::bigint
    UNION
    SELECT sessions.key FROM down JOIN sessions ON sessions.parent = down.key
)
SELECT key FROM up UNION SELECT key FROM down

-- name: lock_one
SELECT key FROM sessions WHERE session_id = ? FOR UPDATE

-- name: key_of
SELECT key FROM sessions WHERE session_id = ?

-- name: key_of_question
SELECT session FROM questions WHERE id = ?

-- name: append
INSERT INTO log (session, seq, parent, kind, step, visit, at, payload, salt, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: log_head
SELECT session_id, seq, digest FROM sessions WHERE key = ?

-- name: records
SELECT seq, parent, kind, step, visit, at, payload, salt, body, digest FROM log
WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq

-- name: record_digest
SELECT digest FROM log WHERE session = ? AND seq = ?

-- name: last_at
SELECT log.at FROM sessions JOIN log ON log.session = sessions.key AND log.seq = sessions.seq WHERE sessions.key = ?

-- name: blob
SELECT data FROM blobs WHERE hash = ?

-- name: strip_log
DELETE FROM log WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM log WHERE session = ?1 ORDER BY seq DESC LIMIT ?2
)) RETURNING 1

-- name: blank_records
UPDATE log SET payload = '', salt = '' WHERE session = ?1
    AND seq = ANY (SELECT jsonb_array_elements_text(?3::jsonb)::bigint)

-- name: log_weight
SELECT coalesce(sum(length(payload) + length(salt) + length(body) + length(digest)), 0)::bigint FROM log
WHERE session = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint)

-- name: settled_until
-- The first transaction that may still be running, and the next one that has not begun.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- name: changed_records
-- Records of the transactions from ?1 on and before ?2, without those of sessions that are being removed.
SELECT log.tx::text::bigint, key, session_id, sessions.parent, signals_n, log.seq
FROM log JOIN sessions ON sessions.key = log.session
WHERE log.tx >= ?1::text::xid8 AND log.tx < ?2::text::xid8 AND sessions.removing = 0
ORDER BY log.tx, log.session, log.seq LIMIT ?3

-- name: changed_signals
SELECT signals.tx::text::bigint, key, session_id, sessions.parent, signals_n, signals.n, signals.after
FROM signals JOIN sessions ON sessions.key = signals.session
WHERE signals.tx >= ?1::text::xid8 AND signals.tx < ?2::text::xid8 AND sessions.removing = 0
ORDER BY signals.tx, signals.session, signals.n LIMIT ?3

-- name: last_signal_before
-- The number of a session's last signal of the transactions before ?2.
SELECT coalesce(max(n), 0) FROM signals WHERE session = ?1 AND tx < ?2::text::xid8

-- name: register
INSERT INTO engines (pid, host, boot, started_at, workflows, queues, lease_until)
VALUES (?, ?, ?, ?, ?, ?, clock_timestamp() + ?::float8 * interval '1 second') RETURNING id

-- name: clock
-- The clock of the server, in microseconds since 1970.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: alive
SELECT id, host, boot FROM engines
WHERE state <> 'dead' AND lease_until > clock_timestamp() - ?::float8 * interval '1 second'

-- name: beat
-- No row: the lease is lost.
UPDATE engines SET lease_until = clock_timestamp() + ?::float8 * interval '1 second'
WHERE id = ? AND state <> 'dead' AND lease_until > clock_timestamp() RETURNING 1

-- name: bury_engines
-- Mark the other engines whose lease has ended as dead, and those of this machine that are known to have died.
-- A row that a transaction has locked belongs to an engine that is writing, or that stopped within a transaction: the
-- others must not wait for it, or they lose their leases. A later look finds it again.
UPDATE engines SET state = 'dead' WHERE id IN (
    SELECT id FROM engines WHERE state <> 'dead' AND id <> ?
        AND (lease_until < clock_timestamp() - ?::float8 * interval '1 second' OR id = ANY (?::bigint[]))
    ORDER BY id FOR UPDATE SKIP LOCKED
) RETURNING id

-- name: cap_leases
-- The clock of the database was set back if a lease ends later than any lease can.
UPDATE engines SET lease_until = clock_timestamp() + ?1::float8 * interval '1 second' WHERE id IN (
    SELECT id FROM engines
    WHERE state <> 'dead' AND lease_until > clock_timestamp() + ?1::float8 * interval '1 second'
    ORDER BY id FOR UPDATE SKIP LOCKED
)

-- name: left_engines
-- Other engines that may have something left to clean up: the lease has ended or is too long, or the engine is dead and
-- still holds sessions or can be forgotten. Also those with the same lock file (0), which tells whether they live.
SELECT id, (state = 'dead' OR lease_until < clock_timestamp() - ?2::float8 * interval '1 second'
    OR lease_until > clock_timestamp() + ?3::float8 * interval '1 second')::int
FROM engines
WHERE id <> ?1 AND CASE
    WHEN state = 'dead' THEN lease_until < clock_timestamp() - interval '10 minutes'
        OR EXISTS (SELECT 1 FROM sessions WHERE sessions.holder = engines.id)
    ELSE boot = ?4 OR lease_until < clock_timestamp() - ?2::float8 * interval '1 second'
        OR lease_until > clock_timestamp() + ?3::float8 * interval '1 second'
END

-- name: left_sessions
-- Sessions of dead engines that no transaction has locked.
SELECT key FROM sessions WHERE holder IN (SELECT id FROM engines WHERE state = 'dead')
ORDER BY key LIMIT ? FOR UPDATE SKIP LOCKED

-- name: lock_free
-- Lock those of some sessions that no other transaction has locked.
SELECT key FROM sessions WHERE key = ANY (?::bigint[]) ORDER BY key FOR UPDATE SKIP LOCKED

-- name: forget_engines
-- Dead engines that hold nothing. One that was only cut off looks for its mark when it is back.
DELETE FROM engines WHERE id IN (
    SELECT id FROM engines WHERE state = 'dead' AND lease_until < clock_timestamp() - interval '10 minutes'
        AND id NOT IN (SELECT holder FROM sessions WHERE holder IS NOT NULL)
    ORDER BY id FOR UPDATE SKIP LOCKED
)

-- name: farewell
UPDATE engines SET state = 'dead' WHERE id = ?

-- name: gate_shared
-- Verbs that depend on whether everything is paused.
SELECT pg_advisory_xact_lock_shared(hashtextextended(current_schema() || ' gate', 0))

-- name: gate_of_mail
SELECT pg_advisory_xact_lock_shared(hashtextextended(current_schema() || ' gate', 0))

-- name: gate
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' gate', 0))

-- name: wave
-- Tell other engines which sessions have changed; an empty text means anything. They look every second in any case.
SELECT pg_notify(?, ?)

-- name: warm
-- Nothing. The server looks up the tables that most reads need.
SELECT 1 FROM sessions, pauses, pause_rounds, standing_pause, engines LIMIT 0

-- name: news
-- Changes with every transaction that wrote a record, a signal or an engine's mark.
SELECT (SELECT max(tx)::text FROM log), (SELECT max(tx)::text FROM signals), (SELECT max(n) FROM tombstones),
    (SELECT round FROM standing_pause), (SELECT asked FROM store), (SELECT md5(string_agg(mark, ',' ORDER BY id)) FROM engines)

-- name: lock_schedules
LOCK TABLE schedules IN SHARE ROW EXCLUSIVE MODE

-- name: schedules
SELECT * FROM schedules ORDER BY name

-- name: schedule
SELECT * FROM schedules WHERE name = ?

-- name: due_schedules
SELECT * FROM schedules
WHERE (triggered_at IS NOT NULL OR (next_at <= ?1 AND paused_at IS NULL))
    AND workflow = ANY (SELECT jsonb_array_elements_text(?2::jsonb))
ORDER BY next_at, name

-- name: next_schedule
SELECT min(next_at) FROM schedules
WHERE next_at > ?1 AND paused_at IS NULL AND workflow = ANY (SELECT jsonb_array_elements_text(?2::jsonb))

-- name: put_schedule
INSERT INTO schedules (
    name, workflow, cron, zone, overlap, catch_up, input, owner, tags, created_at, by, next_at, triggered_at,
    triggered_by, paused_at, paused_by, last_at, last_session, skipped, queue, priority, lane, sum
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    workflow = excluded.workflow, cron = excluded.cron, zone = excluded.zone, overlap = excluded.overlap,
    catch_up = excluded.catch_up, input = excluded.input, owner = excluded.owner, tags = excluded.tags,
    created_at = excluded.created_at, by = excluded.by, next_at = excluded.next_at, triggered_at = excluded.triggered_at,
    triggered_by = excluded.triggered_by, paused_at = excluded.paused_at, paused_by = excluded.paused_by, last_at = excluded.last_at,
    last_session = excluded.last_session, skipped = excluded.skipped, queue = excluded.queue,
    priority = excluded.priority, lane = excluded.lane, sum = excluded.sum

-- name: drop_schedule
DELETE FROM schedules WHERE name = ?

-- name: limits
SELECT scope, name, "by", rate, declared, most, per, full_at, sum FROM limits ORDER BY scope, name, "by", rate, declared

-- name: lock_limits
-- An engine that takes slots locks all limits, in this order, so that two takes cannot take the same slot.
SELECT scope, name, "by", rate, declared, most, per, full_at, sum FROM limits ORDER BY scope, name, "by", rate, declared FOR UPDATE

-- name: put_limit
INSERT INTO limits (scope, name, "by", rate, declared, most, per, full_at, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, name, "by", rate, declared) DO UPDATE SET
    most = excluded.most, per = excluded.per, sum = excluded.sum,
    full_at = CASE WHEN limits.most IS NOT DISTINCT FROM excluded.most AND limits.per = excluded.per THEN limits.full_at ELSE excluded.full_at END

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

-- name: lock_drawer_session
-- The lock lets the session commit, but not be removed.
SELECT key FROM sessions WHERE session_id = ? AND removing = 0 FOR KEY SHARE

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
SELECT coalesce(sum(length(data)), 0)::bigint FROM drawer_entries WHERE stream = ? AND n > ?

-- name: entry_sizes
SELECT n, length(data) FROM drawer_entries WHERE stream = ? AND n > ? ORDER BY n LIMIT ?

-- name: entry_sum
SELECT sum FROM drawer_entries WHERE stream = ? AND n = ?

-- name: pop_entry
DELETE FROM drawer_entries WHERE stream = ? AND n = ?

-- name: value_versions
SELECT key, version FROM drawer_values WHERE drawer = ? AND key = ANY (SELECT jsonb_array_elements_text(?::jsonb))

-- name: put_value
INSERT INTO drawer_values (drawer, key, version, changed, data, sum) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (drawer, key) DO UPDATE SET
    version = excluded.version, changed = excluded.changed, data = excluded.data, sum = excluded.sum

-- name: remove_value
DELETE FROM drawer_values WHERE drawer = ? AND key = ?

-- name: values_by_key
SELECT key, version, changed, data, sum FROM drawer_values WHERE drawer = ? AND key = ANY (SELECT jsonb_array_elements_text(?::jsonb))

-- name: values_by_key_size
SELECT coalesce(sum(length(data)), 0)::bigint FROM drawer_values WHERE drawer = ? AND key = ANY (SELECT jsonb_array_elements_text(?::jsonb))

-- name: value_sizes
SELECT key, length(data) FROM drawer_values WHERE drawer = ? AND key > ? ORDER BY key LIMIT ?

-- name: values_first
-- With a second lower bound, SQLite would begin to search at the first one.
SELECT key, version, changed, data, sum FROM drawer_values
WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?

-- name: values_first_size
SELECT coalesce(sum(size), 0)::bigint FROM (
    SELECT length(data) AS size FROM drawer_values
    WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?
) AS these

-- name: values_last
-- With a second lower bound, SQLite would begin to search at the first one.
SELECT key, version, changed, data, sum FROM drawer_values
WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?

-- name: values_last_size
SELECT coalesce(sum(size), 0)::bigint FROM (
    SELECT length(data) AS size FROM drawer_values
    WHERE drawer = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?
) AS these

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
    ((SELECT coalesce(sum(length(note)), 0) FROM drawer_streams WHERE drawer = ?1)
    + (SELECT coalesce(sum(length(data)), 0) FROM drawer_values WHERE drawer = ?1)
    + (SELECT coalesce(sum(length(data)), 0) FROM drawer_entries
       WHERE stream IN (SELECT id FROM drawer_streams WHERE drawer = ?1)))::bigint

-- name: stray_drawers
-- Rows whose drawer, stream or session does not exist. The session -1 stands for discarded streams.
SELECT 'drawer ' || id FROM drawers WHERE session > 0 AND NOT EXISTS (SELECT 1 FROM sessions WHERE key = session)
UNION ALL
SELECT 'stream ' || id FROM drawer_streams WHERE NOT EXISTS (SELECT 1 FROM drawers WHERE drawers.id = drawer)
UNION ALL
SELECT 'value ' || key FROM drawer_values WHERE NOT EXISTS (SELECT 1 FROM drawers WHERE drawers.id = drawer)
UNION ALL
SELECT 'entry ' || n || ' of stream ' || stream FROM drawer_entries
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
DELETE FROM drawer_entries WHERE ctid = ANY (ARRAY(
    SELECT drawer_entries.ctid FROM drawers JOIN drawer_streams ON drawer = drawers.id
        JOIN drawer_entries ON drawer_entries.stream = drawer_streams.id
    WHERE session = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_values
DELETE FROM drawer_values WHERE ctid = ANY (ARRAY(
    SELECT drawer_values.ctid FROM drawers JOIN drawer_values ON drawer = drawers.id WHERE session = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_streams
DELETE FROM drawer_streams WHERE id = ANY (ARRAY(
    SELECT drawer_streams.id FROM drawers JOIN drawer_streams ON drawer = drawers.id WHERE session = ?1 LIMIT ?2
)) RETURNING 1

-- name: strip_drawers
DELETE FROM drawers WHERE id = ANY (ARRAY(SELECT id FROM drawers WHERE session = ?1 LIMIT ?2)) RETURNING 1

-- name: drawer_weight
SELECT coalesce(sum(
    (SELECT coalesce(sum(length(data)), 0) FROM drawer_values WHERE drawer = drawers.id)
    + (SELECT coalesce(sum(length(note)), 0) FROM drawer_streams WHERE drawer = drawers.id)
    + (SELECT coalesce(sum(length(data)), 0) FROM drawer_entries
       WHERE stream IN (SELECT id FROM drawer_streams WHERE drawer = drawers.id))
), 0)::bigint FROM drawers WHERE session = ANY (SELECT jsonb_array_elements_text(?::jsonb)::bigint)

-- name: drawer_source
-- Whether a session exists whose drawers are copied, which is not removed meanwhile.
SELECT key FROM sessions WHERE key = ? AND removing = 0 FOR KEY SHARE

-- name: copy_drawers
INSERT INTO drawers (session, name, changed, version, keep_for, sum)
SELECT ?2::bigint, name, changed, version, keep_for, sum FROM drawers WHERE session = ?1

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

-- name: lock_drawer
-- One engine at a time writes to a drawer.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' drawer ' || ?::text || ' ' || ?::text, 0))

-- name: share_drawers
-- A write to a drawer shares this lock with writes to other drawers of the session.
SELECT pg_advisory_xact_lock_shared(hashtextextended(current_schema() || ' drawers ' || ?::text, 0))

-- name: lock_drawers
-- Keep all drawers of a session as they are, also those that do not exist yet.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' drawers ' || ?::text, 0))
