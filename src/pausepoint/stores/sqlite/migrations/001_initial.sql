-- Version 1: sessions with their log, signals, pauses, questions and blobs.

-- A key is never reused, so the key of a removed session finds nothing. Two checksums verify the facts whenever a row
-- is read: `given_sum` covers those that seldom change, `moved_sum` those that a commit or a claim sets. `removal` is
-- the tombstone of a session that is being removed.
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL UNIQUE,
    parent INTEGER REFERENCES sessions (key),
    workflow TEXT NOT NULL,
    version INTEGER NOT NULL,
    owner TEXT,
    tags TEXT NOT NULL DEFAULT '[]',
    input_digest BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    keep_for INTEGER,
    queue TEXT NOT NULL DEFAULT 'default',
    priority INTEGER NOT NULL DEFAULT 0,
    lane TEXT,
    guest INTEGER NOT NULL DEFAULT 0 CHECK (guest IN (0, 1)),
    removing INTEGER NOT NULL DEFAULT 0 CHECK (removing IN (0, 1)),
    removal TEXT,
    seq INTEGER NOT NULL,
    head INTEGER NOT NULL,
    tail INTEGER NOT NULL DEFAULT 0,
    key_frame INTEGER NOT NULL,
    digest BLOB NOT NULL,
    step TEXT,
    visit INTEGER NOT NULL,
    held_by_guard INTEGER NOT NULL DEFAULT 0,
    ended TEXT CHECK (ended = 'completed' OR ended = 'failed' OR ended = 'cancelled'),
    failure TEXT,
    pause_requested INTEGER NOT NULL DEFAULT 0 CHECK (pause_requested IN (0, 1)),
    pause_mode TEXT NOT NULL DEFAULT 'finish' CHECK (pause_mode IN ('finish', 'abort')),
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    exempt INTEGER NOT NULL DEFAULT 0,
    holder INTEGER,
    kept_by INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    waiting TEXT,
    wakes_at INTEGER,
    ready_at INTEGER,
    mail INTEGER NOT NULL DEFAULT 0 CHECK (mail IN (0, 1)),
    frozen INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    spent_usd INTEGER NOT NULL DEFAULT 0,
    spent_tokens INTEGER NOT NULL DEFAULT 0,
    spent_operations INTEGER NOT NULL DEFAULT 0,
    budget_usd INTEGER,
    budget_tokens INTEGER,
    budget_operations INTEGER,
    progress TEXT,
    signals_n INTEGER NOT NULL DEFAULT 0,
    signals_digest BLOB NOT NULL,
    given_sum INTEGER NOT NULL,
    moved_sum INTEGER NOT NULL
) STRICT;

-- No index includes a column that an ordinary commit sets, because every checkpoint would rewrite it. `sessions_rested`
-- and `sessions_spent` have none of the sessions that are driven, so a checkpoint leaves them alone too.
-- `sessions_workflow` is read backwards: by workflow, and the newest session of each first.
CREATE INDEX sessions_created ON sessions (created_at);
CREATE INDEX sessions_workflow ON sessions (workflow DESC, created_at);
CREATE INDEX sessions_owner ON sessions (owner, created_at) WHERE owner IS NOT NULL;
CREATE INDEX sessions_held ON sessions (holder, queue, workflow, lane, owner, guest) WHERE holder IS NOT NULL;
CREATE INDEX sessions_rested ON sessions (updated_at) WHERE holder IS NULL;
CREATE INDEX sessions_spent ON sessions (spent_usd) WHERE holder IS NULL;
CREATE INDEX sessions_waking ON sessions (wakes_at)
    WHERE wakes_at IS NOT NULL AND pause_requested = 0 AND guest = 0;
CREATE INDEX sessions_ready ON sessions (queue, workflow, priority, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX sessions_exempt ON sessions (exempt) WHERE exempt > 0;
CREATE INDEX sessions_children ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_removing ON sessions (key) WHERE removing = 1;
CREATE INDEX sessions_cancelled ON sessions (key) WHERE cancel_requested = 1;
CREATE INDEX sessions_failed ON sessions (created_at) WHERE ended = 'failed';
CREATE INDEX sessions_open ON sessions (created_at) WHERE ended IS NULL OR ended = 'failed';
CREATE INDEX sessions_ended ON sessions (workflow, ended, removing) WHERE ended = 'completed' OR ended = 'cancelled';

-- The sessions by tag, the newest last: a copy of the tags in `sessions.tags` and of `created_at`, which never change.
CREATE TABLE tagged (
    tag TEXT NOT NULL,
    at INTEGER NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (key),
    PRIMARY KEY (tag, at, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX tagged_session ON tagged (session);

CREATE TRIGGER session_untagged AFTER DELETE ON sessions
BEGIN
    DELETE FROM tagged WHERE session = OLD.key;
END;

-- Append-only. Inserts go to the end of the table and touch no index, except for key frames. `sessions.head` is the id
-- of a session's last record; `prev` is the id of the record before. Only key frames can be found by `seq`. The chain
-- between two key frames is short. A record without payload and salt was redacted; its `body` keeps the chain of
-- digests intact.
CREATE TABLE log (
    id INTEGER PRIMARY KEY,
    prev INTEGER NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (key),
    seq INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    kind TEXT NOT NULL,
    step TEXT NOT NULL,
    visit INTEGER NOT NULL,
    at INTEGER NOT NULL,
    payload BLOB NOT NULL,
    salt BLOB NOT NULL,
    body BLOB NOT NULL,
    digest BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX log_key_frames ON log (session, seq) WHERE kind = 'key';

-- Everything that reached a session from outside. Signals have their own chain of digests.
CREATE TABLE signals (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (key),
    n INTEGER NOT NULL,
    after INTEGER NOT NULL,
    log_end INTEGER NOT NULL,
    kind TEXT NOT NULL,
    "by" TEXT,
    at INTEGER NOT NULL,
    payload BLOB NOT NULL,
    salt BLOB NOT NULL,
    body BLOB NOT NULL,
    digest BLOB NOT NULL,
    UNIQUE (session, n)
) STRICT;

-- The signals that added files which still exist, by file id and by the hash of the content.
CREATE TABLE files (
    session INTEGER NOT NULL REFERENCES sessions (key),
    id TEXT NOT NULL,
    content BLOB NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX files_content ON files (session, content);

-- Signals that no step has read yet. `about` is the child, question or question key that the signal is about.
CREATE TABLE inbox (
    session INTEGER NOT NULL REFERENCES sessions (key),
    n INTEGER NOT NULL,
    kind TEXT NOT NULL,
    about TEXT,
    PRIMARY KEY (session, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_kinds ON inbox (session, kind, about);

-- Messages that were sent with a key, by the root of the session's tree: the same key again delivers nothing.
CREATE TABLE sent (
    root INTEGER NOT NULL REFERENCES sessions (key),
    once TEXT NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (key),
    n INTEGER NOT NULL,
    PRIMARY KEY (root, once)
) STRICT, WITHOUT ROWID;

-- `opened_sum` is the checksum of the pause when it began, `closed_sum` that of its end. A pause that ended without a
-- `closed_sum` was ended directly in the database. The commit that parks a session because of a pause sets
-- `took_effect_at`.
CREATE TABLE pauses (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (key),
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    "by" TEXT,
    at INTEGER NOT NULL,
    step TEXT NOT NULL,
    mode TEXT NOT NULL,
    freeze INTEGER NOT NULL CHECK (freeze IN (0, 1)),
    closed_at INTEGER,
    closed_by TEXT,
    standing INTEGER NOT NULL DEFAULT 0,
    took_effect_at INTEGER,
    opened_sum INTEGER NOT NULL,
    closed_sum INTEGER
) STRICT;

CREATE INDEX pauses_session ON pauses (session);
CREATE INDEX pauses_open ON pauses (session) WHERE closed_at IS NULL;
CREATE INDEX pauses_stopped ON pauses (standing) WHERE took_effect_at IS NOT NULL;

-- The pause of everything, while it is in effect: one row, however many sessions there are. It stops every session that
-- has not ended and whose `exempt` is smaller than `round`. `pauses.standing` is the `epoch` of the pause of everything
-- that a record is part of; such a record is open as long as that pause is in effect.
CREATE TABLE standing_pause (
    n INTEGER PRIMARY KEY CHECK (n = 1),
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    "by" TEXT,
    at INTEGER NOT NULL,
    mode TEXT NOT NULL CHECK (mode IN ('finish', 'abort')),
    freeze INTEGER NOT NULL CHECK (freeze IN (0, 1)),
    epoch INTEGER NOT NULL,
    round INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;

-- All requests to pause everything, and when and by whom they were lifted. Those from a pause to its lift have the same
-- `epoch`. `freeze` includes the requests before it in the same epoch. `asked` is the number of sessions that were driven
-- at that time and that no request before it stops. See `pausepoint.model.everything`.
CREATE TABLE pause_rounds (
    round INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    freeze INTEGER NOT NULL CHECK (freeze IN (0, 1)),
    asked INTEGER NOT NULL DEFAULT 0,
    lifted_at INTEGER,
    lifted_by TEXT
) STRICT;

-- The status of questions. The log holds what a question asks: record `seq`, with the id `place`. `root` is the root of
-- the session's tree, the session that people talk to. `answer` is the number of the signal with the answer; `seen` is
-- a digest of what a person is shown. A waiting question expires at `expires_at`, even if no process updates its row.
CREATE TABLE questions (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (key),
    root INTEGER NOT NULL REFERENCES sessions (key),
    id BLOB NOT NULL UNIQUE,
    key TEXT NOT NULL,
    place INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (
        status IN ('WAITING_USER_INPUT', 'RESUMED', 'COMPLETED', 'EXPIRED', 'CANCELLED')
    ),
    version INTEGER NOT NULL,
    seen BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    answer INTEGER,
    told INTEGER NOT NULL CHECK (told IN (0, 1)),
    refused INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;

CREATE INDEX questions_session ON questions (session);
CREATE INDEX questions_root ON questions (root);
CREATE INDEX questions_waiting ON questions (root) WHERE status = 'WAITING_USER_INPUT';

-- Large values, stored once, identified by their sha256.
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    data BLOB NOT NULL
) STRICT;

-- Which session references which large value. A value without a reference is deleted.
CREATE TABLE names (
    session INTEGER NOT NULL REFERENCES sessions (key),
    hash BLOB NOT NULL,
    PRIMARY KEY (session, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX names_hash ON names (hash);

-- What remains of removed sessions.
CREATE TABLE tombstones (
    n INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    workflow TEXT NOT NULL,
    owner TEXT,
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    removed_at INTEGER NOT NULL,
    "by" TEXT,
    reason TEXT NOT NULL,
    records INTEGER NOT NULL,
    digest BLOB NOT NULL,
    sum INTEGER NOT NULL
) STRICT;

CREATE INDEX tombstones_session ON tombstones (session_id);

-- Requests that must have one effect, by key. `holder` is the engine that carries one out; `took_effect` is set in the
-- transaction of the effect. After `until` the request is forgotten.
CREATE TABLE remembered (
    n INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    answer BLOB,
    until INTEGER NOT NULL,
    holder INTEGER NOT NULL,
    took_effect INTEGER NOT NULL CHECK (took_effect IN (0, 1)),
    sum INTEGER NOT NULL
) STRICT;

CREATE INDEX remembered_until ON remembered (until);

-- The sessions on which a request without an answer took effect, if it is for many of them. A session is never named
-- twice; its row may be gone.
CREATE TABLE effects (
    request INTEGER NOT NULL REFERENCES remembered (n),
    session INTEGER NOT NULL,
    PRIMARY KEY (request, session)
) STRICT, WITHOUT ROWID;

-- Descriptions of workflows, for programs without their code. `digest` is the SHA-256 of `document`.
CREATE TABLE descriptions (
    n INTEGER PRIMARY KEY,
    workflow TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    document BLOB NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;

CREATE INDEX descriptions_workflow ON descriptions (workflow, version, seen_at);

-- When sessions of a workflow start on their own. `input` are the given fields.
CREATE TABLE schedules (
    name TEXT NOT NULL PRIMARY KEY,
    workflow TEXT NOT NULL,
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    overlap TEXT NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow')),
    catch_up TEXT NOT NULL CHECK (catch_up IN ('newest', 'all', 'none')),
    input BLOB NOT NULL,
    owner TEXT,
    tags TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    "by" TEXT,
    next_at INTEGER NOT NULL,
    triggered_at INTEGER,
    triggered_by TEXT,
    paused_at INTEGER,
    paused_by TEXT,
    last_at INTEGER,
    last_session TEXT,
    skipped INTEGER NOT NULL,
    queue TEXT,
    priority INTEGER,
    lane TEXT,
    sum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Limits of the sessions at work at once, or with `per` of those that get to work in a time: `pausepoint.model.limits`.
-- A slot has no row: it is the hold of a session. `sum` covers all columns but `full_at`.
CREATE TABLE limits (
    scope TEXT NOT NULL CHECK (scope IN ('queue', 'workflow', 'lane')),
    name TEXT NOT NULL,
    "by" TEXT NOT NULL CHECK ("by" IN ('', 'owner', 'lane')),
    rate INTEGER NOT NULL CHECK (rate IN (0, 1)),
    declared INTEGER NOT NULL CHECK (declared IN (0, 1)),
    most INTEGER,
    per INTEGER NOT NULL,
    full_at INTEGER NOT NULL,
    sum INTEGER NOT NULL,
    PRIMARY KEY (scope, name, "by", rate, declared)
) STRICT, WITHOUT ROWID;

-- Bytes that programs keep beside the sessions: `pausepoint.model.drawers`. `session` is 0 for the store's own drawers,
-- and -1 for what is about to be deleted.
-- `changed` (milliseconds) and `version` are the last ones that the drawer gave out.
CREATE TABLE drawers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    changed INTEGER NOT NULL,
    version INTEGER NOT NULL,
    keep_for INTEGER,
    sum INTEGER NOT NULL,
    UNIQUE (session, name)
) STRICT;

-- `n` is how many entries a stream has, and `last` the checksum of the last one.
CREATE TABLE drawer_streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    drawer INTEGER NOT NULL REFERENCES drawers (id),
    stream TEXT NOT NULL,
    n INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    note BLOB,
    last INTEGER NOT NULL,
    sum INTEGER NOT NULL,
    UNIQUE (drawer, stream)
) STRICT;

-- `sum` is the checksum of an entry and all before it.
CREATE TABLE drawer_entries (
    id INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL REFERENCES drawer_streams (id),
    n INTEGER NOT NULL,
    data BLOB NOT NULL,
    sum INTEGER NOT NULL,
    UNIQUE (stream, n)
) STRICT;

CREATE TABLE drawer_values (
    id INTEGER PRIMARY KEY,
    drawer INTEGER NOT NULL REFERENCES drawers (id),
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    data BLOB NOT NULL,
    sum INTEGER NOT NULL,
    UNIQUE (drawer, key)
) STRICT;

-- The engines that may hold sessions. A number is never reused. It is also the byte of the lock file that the engine
-- keeps locked while it is alive. `workflows` and `queues` (NULL: all) are those whose due sessions it picks up. `mark`
-- identifies the engine's last transaction, so that the engine can check whether it took effect if COMMIT reported an
-- error.
CREATE TABLE engines (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    workflows TEXT NOT NULL DEFAULT '[]',
    queues TEXT,
    mark TEXT
) STRICT;

-- Clearing the flag directly in the database withdraws the operator's pauses. The store's own methods close them first,
-- with an author and the engine's clock, so that this trigger finds nothing to do.
CREATE TRIGGER pause_taken_back AFTER UPDATE OF pause_requested ON sessions
WHEN NEW.pause_requested = 0 AND OLD.pause_requested = 1
BEGIN
    UPDATE pauses SET closed_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
    WHERE session = NEW.key AND kind = 'operator' AND closed_at IS NULL AND standing = 0;
    UPDATE sessions SET pause_mode = 'finish', ready_at = CASE
        WHEN holder IS NOT NULL OR ended IS NOT NULL OR removing OR guest
            OR EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0) THEN NULL
        WHEN wakes_at IS NULL AND waiting IS NULL THEN 0
        ELSE wakes_at
    END
    WHERE key = NEW.key;
END;

CREATE TRIGGER pause_asked_for AFTER UPDATE OF pause_requested ON sessions
WHEN NEW.pause_requested = 1 AND OLD.ready_at IS NOT NULL
BEGIN
    UPDATE sessions SET ready_at = NULL WHERE key = NEW.key;
END;

-- A view for people. Only `pause_requested` can be set. `status` is what SQL can know: a session whose holder died
-- still counts as running here.
CREATE VIEW workflow_states AS
SELECT
    session_id,
    workflow,
    version,
    step AS current_step,
    CASE
        WHEN ended IN ('completed', 'cancelled') THEN ended
        WHEN pause_requested OR (ended IS NULL AND exempt < ifnull((SELECT round FROM standing_pause), 0))
            OR EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0)
            THEN iif(holder IS NULL, 'paused', 'pausing')
        WHEN ended = 'failed' THEN ended
        WHEN holder IS NOT NULL THEN 'running'
        WHEN wakes_at <= CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) THEN 'ready'
        WHEN waiting IS NOT NULL THEN 'waiting'
        WHEN wakes_at IS NOT NULL THEN 'sleeping'
        WHEN seq <= 1 THEN 'created'
        ELSE 'ready'
    END AS status,
    pause_requested OR (ended IS NULL AND exempt < ifnull((SELECT round FROM standing_pause), 0)) AS pause_requested,
    CASE
        WHEN (ended IS NULL AND exempt < ifnull((SELECT round FROM standing_pause), 0))
            AND (SELECT mode FROM standing_pause) = 'abort' THEN 'abort'
        ELSE pause_mode
    END AS pause_mode,
    cancel_requested,
    owner,
    tags,
    failure,
    progress,
    spent_usd / 1000000.0 AS spent_usd,
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch')
        || printf('.%06d+00:00', created_at % 1000000) AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch')
        || printf('.%06d+00:00', updated_at % 1000000) AS updated_at
FROM sessions;

-- Like `pause`, this does not pause sessions that are completed or cancelled. Like `resume`, clearing the flag exempts
-- the session from the pause of everything.
CREATE TRIGGER pause_by_hand INSTEAD OF UPDATE OF pause_requested ON workflow_states
BEGIN
    -- The row is left out of RETURNING, which so names what was paused. The other rows of the statement are updated.
    SELECT RAISE(IGNORE) WHERE NEW.pause_requested <> 0
        AND (SELECT ended FROM sessions WHERE session_id = NEW.session_id) IN ('completed', 'cancelled');
    UPDATE sessions SET pause_requested = NEW.pause_requested WHERE session_id = NEW.session_id;
    UPDATE pauses SET closed_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
    WHERE NEW.pause_requested = 0 AND closed_at IS NULL AND standing = (SELECT epoch FROM standing_pause)
        AND session = (SELECT key FROM sessions WHERE session_id = NEW.session_id);
    UPDATE sessions SET exempt = (SELECT round FROM standing_pause)
    WHERE session_id = NEW.session_id AND NEW.pause_requested = 0 AND (ended IS NULL OR ended = 'failed')
        AND EXISTS (SELECT 1 FROM standing_pause);
    -- What waits for nothing becomes due, so that an engine picks it up.
    UPDATE sessions SET wakes_at = 0
    WHERE session_id = NEW.session_id AND NEW.pause_requested = 0 AND OLD.pause_requested = 1 AND ready_at = 0;
END;

-- The sessions that are to pause. Inserting an id pauses that session; unlike an UPDATE of the view above, which cannot
-- fail for a row that it does not find, it raises an error if there is nothing to pause. Deleting an id withdraws it.
CREATE VIEW pause_requests AS SELECT session_id, status FROM workflow_states WHERE pause_requested;

CREATE TRIGGER pause_one_by_hand INSTEAD OF INSERT ON pause_requests
BEGIN
    SELECT RAISE(ABORT, 'There is no session with this id. List the ids: SELECT session_id FROM workflow_states.')
    WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE session_id = NEW.session_id);
    SELECT RAISE(ABORT, 'The session has ended, so there is nothing to pause.')
    WHERE (SELECT ended FROM sessions WHERE session_id = NEW.session_id) IN ('completed', 'cancelled');
    UPDATE workflow_states SET pause_requested = 1 WHERE session_id = NEW.session_id;
END;

CREATE TRIGGER unpause_one_by_hand INSTEAD OF DELETE ON pause_requests
BEGIN
    UPDATE workflow_states SET pause_requested = 0 WHERE session_id = OLD.session_id;
END;
