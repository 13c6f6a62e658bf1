-- The current schema of Pausepoint's store in Postgres (version 1). `migrations/` creates the same schema step by step.
--
-- The tables are those of the SQLite store, which explains them. The differences: a record is found by session and
-- number, so there are no log ids; `tx` orders the writes of all sessions; engines have leases; and one row of `store`
-- has the version. No foreign key is declared, because every row that the store writes belongs to a session that it has
-- just locked.

-- A key is never reused, so the key of a removed session finds nothing. Two checksums verify the facts whenever a row
-- is read: `given_sum` covers those that seldom change, `moved_sum` those that a commit or a claim sets. `removal` is
-- the tombstone of a session that is being removed.
--
-- No CHECK is declared: Postgres compiles it for each statement, which takes as long as the rest of an UPDATE. The
-- checksums cover most flags, and the trigger `pause_flag` checks those of a pause.
CREATE TABLE sessions (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL UNIQUE,
    parent bigint,
    workflow text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    owner text COLLATE "C",
    tags text COLLATE "C" NOT NULL DEFAULT '[]',
    input_digest bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    keep_for bigint,
    queue text COLLATE "C" NOT NULL DEFAULT 'default',
    priority bigint NOT NULL DEFAULT 0,
    lane text COLLATE "C",
    guest bigint NOT NULL DEFAULT 0,
    removing bigint NOT NULL DEFAULT 0,
    removal text COLLATE "C",
    seq bigint NOT NULL,
    key_frame bigint NOT NULL,
    digest bytea NOT NULL,
    step text COLLATE "C",
    visit bigint NOT NULL,
    held_by_guard bigint NOT NULL DEFAULT 0,
    ended text COLLATE "C",
    failure text COLLATE "C",
    pause_requested bigint NOT NULL DEFAULT 0,
    pause_mode text COLLATE "C" NOT NULL DEFAULT 'finish',
    cancel_requested bigint NOT NULL DEFAULT 0,
    exempt bigint NOT NULL DEFAULT 0,
    holder bigint,
    kept_by bigint,
    fence bigint NOT NULL DEFAULT 0,
    waiting text COLLATE "C",
    wakes_at bigint,
    ready_at bigint,
    mail bigint NOT NULL DEFAULT 0,
    frozen bigint NOT NULL DEFAULT 0,
    crashes bigint NOT NULL DEFAULT 0,
    spent_usd bigint NOT NULL DEFAULT 0,
    spent_tokens bigint NOT NULL DEFAULT 0,
    spent_operations bigint NOT NULL DEFAULT 0,
    budget_usd bigint,
    budget_tokens bigint,
    budget_operations bigint,
    progress text COLLATE "C",
    signals_n bigint NOT NULL DEFAULT 0,
    signals_digest bytea NOT NULL,
    given_sum bigint NOT NULL,
    moved_sum bigint NOT NULL
) WITH (fillfactor = 70);

-- No index includes a column that an ordinary commit sets, not even one of its condition: Postgres then changes the row
-- in place, and no index at all. So lists that are sorted by `updated_at` or by cost read all sessions that match.
CREATE INDEX sessions_created ON sessions (created_at);
CREATE INDEX sessions_workflow ON sessions (workflow, created_at);
CREATE INDEX sessions_owner ON sessions (owner, created_at) WHERE owner IS NOT NULL;
CREATE INDEX sessions_held ON sessions (holder, queue, workflow, lane, owner, guest) WHERE holder IS NOT NULL;
CREATE INDEX sessions_waking ON sessions (wakes_at)
    WHERE wakes_at IS NOT NULL AND pause_requested = 0 AND guest = 0;
CREATE INDEX sessions_ready ON sessions (queue, workflow, priority, ready_at, key)
    WHERE ready_at IS NOT NULL;
CREATE INDEX sessions_exempt ON sessions (exempt) WHERE exempt > 0;
CREATE INDEX sessions_children ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_removing ON sessions (key) WHERE removing = 1;
CREATE INDEX sessions_cancelled ON sessions (key) WHERE cancel_requested = 1;
CREATE INDEX sessions_failed ON sessions (created_at) WHERE ended = 'failed';
CREATE INDEX sessions_open ON sessions (created_at) WHERE ended IS NULL OR ended = 'failed';
CREATE INDEX sessions_ended ON sessions (workflow, ended, removing) WHERE ended = 'completed' OR ended = 'cancelled';

-- The sessions by tag, the newest last: a copy of the tags in `sessions.tags` and of `created_at`, which never change.
CREATE TABLE tagged (
    tag text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    session bigint NOT NULL,
    PRIMARY KEY (tag, at, session)
);

CREATE INDEX tagged_session ON tagged (session);

CREATE FUNCTION forget_what_is_left() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM tagged WHERE session = OLD.key;
    DELETE FROM charges WHERE session = OLD.key;
    RETURN NULL;
END $$;

CREATE TRIGGER session_removed AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION forget_what_is_left();

-- Append-only. `tx` is the transaction that wrote a record: it gives the log and the signals of all sessions one order.
-- A record without payload and salt was redacted; its `body` keeps the chain of digests intact.
CREATE TABLE log (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    parent bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL,
    visit bigint NOT NULL,
    at bigint NOT NULL,
    payload bytea NOT NULL,
    salt bytea NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (session, seq)
);

CREATE INDEX log_key_frames ON log (session, seq) WHERE kind = 'key';
CREATE INDEX log_tx ON log (tx);

-- What descendants of a session have spent, one row per commit and ancestor. A commit locks only its own session, so
-- many children can spend at once; reads add these rows, and the engines fold them into the row of the session.
CREATE TABLE charges (
    session bigint NOT NULL,
    usd bigint NOT NULL,
    tokens bigint NOT NULL,
    operations bigint NOT NULL
);

CREATE INDEX charges_session ON charges (session);

-- Everything that reached a session from outside. Signals have their own chain of digests.
CREATE TABLE signals (
    session bigint NOT NULL,
    n bigint NOT NULL,
    after bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    "by" text COLLATE "C",
    at bigint NOT NULL,
    payload bytea NOT NULL,
    salt bytea NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (session, n)
);

CREATE INDEX signals_tx ON signals (tx);

-- The signals that added files which still exist, by file id and by the hash of the content.
CREATE TABLE files (
    session bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (session, id)
);

CREATE INDEX files_content ON files (session, content);

-- Signals that no step has read yet. `about` is the child, question or question key that the signal is about.
CREATE TABLE inbox (
    session bigint NOT NULL,
    n bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    about text COLLATE "C",
    PRIMARY KEY (session, n)
);

CREATE INDEX inbox_kinds ON inbox (session, kind, about);

-- Messages that were sent with a key, by the root of the session's tree: the same key again delivers nothing.
CREATE TABLE sent (
    root bigint NOT NULL,
    once text COLLATE "C" NOT NULL,
    session bigint NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (root, once)
);

-- `opened_sum` is the checksum of the pause when it began, `closed_sum` that of its end. A pause that ended without a
-- `closed_sum` was ended directly in the database. The commit that parks a session because of a pause sets
-- `took_effect_at`.
CREATE TABLE pauses (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    kind text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    "by" text COLLATE "C",
    at bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    mode text COLLATE "C" NOT NULL,
    "freeze" bigint NOT NULL CHECK ("freeze" IN (0, 1)),
    closed_at bigint,
    closed_by text COLLATE "C",
    standing bigint NOT NULL DEFAULT 0,
    took_effect_at bigint,
    opened_sum bigint NOT NULL,
    closed_sum bigint
);

CREATE INDEX pauses_session ON pauses (session);
CREATE INDEX pauses_open ON pauses (session) WHERE closed_at IS NULL;
CREATE INDEX pauses_stopped ON pauses (standing) WHERE took_effect_at IS NOT NULL;

-- The pause of everything, while it is in effect: one row, however many sessions there are. It stops every session that
-- has not ended and whose `exempt` is smaller than `round`. `pauses.standing` is the `epoch` of the pause of everything
-- that a record is part of; such a record is open as long as that pause is in effect.
CREATE TABLE standing_pause (
    n bigint PRIMARY KEY CHECK (n = 1),
    id text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    "by" text COLLATE "C",
    at bigint NOT NULL,
    mode text COLLATE "C" NOT NULL CHECK (mode IN ('finish', 'abort')),
    "freeze" bigint NOT NULL CHECK ("freeze" IN (0, 1)),
    epoch bigint NOT NULL,
    round bigint NOT NULL,
    sum bigint NOT NULL
);

-- All requests to pause everything, and when and by whom they were lifted. Those from a pause to its lift have the same
-- `epoch`. `freeze` includes the requests before it in the same epoch. `asked` is the number of sessions that were driven
-- at that time and that no request before it stops. See `pausepoint.model.everything`.
CREATE TABLE pause_rounds (
    round bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    at bigint NOT NULL,
    "freeze" bigint NOT NULL CHECK ("freeze" IN (0, 1)),
    asked bigint NOT NULL DEFAULT 0,
    lifted_at bigint,
    lifted_by text COLLATE "C"
);

-- The status of questions. The log holds what a question asks: record `seq`. `root` is the root of
-- the session's tree, the session that people talk to. `answer` is the number of the signal with the answer; `seen` is
-- a digest of what a person is shown. A waiting question expires at `expires_at`, even if no process updates its row.
CREATE TABLE questions (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    root bigint NOT NULL,
    id bytea NOT NULL UNIQUE,
    key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    status text COLLATE "C" NOT NULL CHECK (
        status IN ('WAITING_USER_INPUT', 'RESUMED', 'COMPLETED', 'EXPIRED', 'CANCELLED')
    ),
    version bigint NOT NULL,
    seen bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    answer bigint,
    told bigint NOT NULL CHECK (told IN (0, 1)),
    refused bigint NOT NULL,
    sum bigint NOT NULL
);

CREATE INDEX questions_session ON questions (session);
CREATE INDEX questions_root ON questions (root);
CREATE INDEX questions_waiting ON questions (root) WHERE status = 'WAITING_USER_INPUT';

-- Large values, stored once, identified by their sha256.
CREATE TABLE blobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash bytea NOT NULL UNIQUE,
    data bytea NOT NULL
);

-- Which session references which large value. A value without a reference is deleted.
CREATE TABLE names (
    session bigint NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (session, hash)
);

CREATE INDEX names_hash ON names (hash);

-- What remains of removed sessions.
CREATE TABLE tombstones (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    owner text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    removed_at bigint NOT NULL,
    "by" text COLLATE "C",
    reason text COLLATE "C" NOT NULL,
    records bigint NOT NULL,
    digest bytea NOT NULL,
    sum bigint NOT NULL
);

CREATE INDEX tombstones_session ON tombstones (session_id);

-- Requests that must have one effect, by key. `holder` is the engine that carries one out; `took_effect` is set in the
-- transaction of the effect. After `until` the request is forgotten.
CREATE TABLE remembered (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text COLLATE "C" NOT NULL UNIQUE,
    digest bytea NOT NULL,
    answer bytea,
    until bigint NOT NULL,
    holder bigint NOT NULL,
    took_effect bigint NOT NULL CHECK (took_effect IN (0, 1)),
    sum bigint NOT NULL
);

CREATE INDEX remembered_until ON remembered (until);

-- The sessions on which a request without an answer took effect, if it is for many of them. A session is never named
-- twice; its row may be gone.
CREATE TABLE effects (
    request bigint NOT NULL,
    session bigint NOT NULL,
    PRIMARY KEY (request, session)
);

-- Descriptions of workflows, for programs without their code. `digest` is the SHA-256 of `document`.
CREATE TABLE descriptions (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    digest bytea NOT NULL UNIQUE,
    document bytea NOT NULL,
    seen_at bigint NOT NULL
);

CREATE INDEX descriptions_workflow ON descriptions (workflow, version, seen_at);

-- When sessions of a workflow start on their own: `pausepoint.model.schedules.Schedule`. `input` are the given fields.
CREATE TABLE schedules (
    name text COLLATE "C" PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL,
    cron text NOT NULL,
    zone text NOT NULL,
    overlap text NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow')),
    catch_up text NOT NULL CHECK (catch_up IN ('newest', 'all', 'none')),
    input bytea NOT NULL,
    owner text,
    tags text NOT NULL,
    created_at bigint NOT NULL,
    by text,
    next_at bigint NOT NULL,
    triggered_at bigint,
    triggered_by text,
    paused_at bigint,
    paused_by text,
    last_at bigint,
    last_session text,
    skipped bigint NOT NULL,
    queue text,
    priority bigint,
    lane text,
    sum bigint NOT NULL
);

-- Limits of the sessions at work at once, or with `per` of those that get to work in a time: `pausepoint.model.limits`.
-- A slot has no row: it is the hold of a session. `sum` covers all columns but `full_at`.
CREATE TABLE limits (
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('queue', 'workflow', 'lane')),
    name text COLLATE "C" NOT NULL,
    "by" text COLLATE "C" NOT NULL CHECK ("by" IN ('', 'owner', 'lane')),
    rate bigint NOT NULL CHECK (rate IN (0, 1)),
    declared bigint NOT NULL CHECK (declared IN (0, 1)),
    most bigint,
    per bigint NOT NULL,
    full_at bigint NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (scope, name, "by", rate, declared)
);

-- Bytes that programs keep beside the sessions: `pausepoint.model.drawers`. `session` is 0 for the store's own drawers,
-- and -1 for what is about to be deleted.
-- `changed` (milliseconds) and `version` are the last ones that the drawer gave out.
CREATE TABLE drawers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    changed bigint NOT NULL,
    version bigint NOT NULL,
    keep_for bigint,
    sum bigint NOT NULL,
    UNIQUE (session, name)
);

-- `n` is how many entries a stream has, and `last` the checksum of the last one.
CREATE TABLE drawer_streams (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    drawer bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    changed bigint NOT NULL,
    note bytea,
    last bigint NOT NULL,
    sum bigint NOT NULL,
    UNIQUE (drawer, stream)
);

-- `sum` is the checksum of an entry and all before it.
CREATE TABLE drawer_entries (
    stream bigint NOT NULL,
    n bigint NOT NULL,
    data bytea NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (stream, n)
);

CREATE TABLE drawer_values (
    drawer bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    changed bigint NOT NULL,
    data bytea NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (drawer, key)
);

-- The engines that may hold sessions. A number is never reused. An engine is alive as long as its lease has not ended,
-- by the clock of the database, and its `state` is not dead. `host` and `boot` say on which machine it runs: there, the
-- byte of its number in a lock file also shows whether it is alive. `workflows` and `queues` (NULL: all) are those whose
-- due sessions it picks up. `mark` identifies the engine's last transaction, so that the engine can find out whether it
-- took effect.
CREATE TABLE engines (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pid bigint NOT NULL,
    host text COLLATE "C" NOT NULL,
    boot text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    lease_until timestamptz NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'up' CHECK (state IN ('up', 'dead')),
    workflows text COLLATE "C" NOT NULL DEFAULT '[]',
    queues text COLLATE "C",
    mark text COLLATE "C",
    attempt bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- One row. `version` is that of the schema; `uuid` names this store on all machines. `asked` rises with each request
-- that is made by hand, so that engines notice it.
CREATE TABLE store (
    version bigint NOT NULL,
    uuid text COLLATE "C" NOT NULL,
    asked bigint NOT NULL DEFAULT 0
);

CREATE FUNCTION microseconds_now() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Postgres 15 has no `pg_input_is_valid`.
CREATE FUNCTION is_json(document text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM document::jsonb;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;

-- Clearing the flag directly in the database withdraws the operator's pauses. The store's own methods close them first,
-- with an author and the engine's clock, so that this trigger finds nothing to do. Setting it makes a session not
-- ready.
CREATE FUNCTION follow_pause_flag() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.pause_requested NOT IN (0, 1) OR NEW.pause_mode NOT IN ('finish', 'abort') THEN
        RAISE check_violation USING MESSAGE = format(
            'Session %s: pause_requested is 0 or 1, and pause_mode is finish or abort. Nothing was changed.',
            NEW.session_id
        );
    ELSIF NEW.pause_requested = 0 AND OLD.pause_requested = 1 THEN
        UPDATE pauses SET closed_at = microseconds_now()
        WHERE session = NEW.key AND kind = 'operator' AND closed_at IS NULL AND standing = 0;
        NEW.pause_mode := 'finish';
        NEW.ready_at := CASE
            WHEN NEW.holder IS NOT NULL OR NEW.ended IS NOT NULL OR NEW.removing = 1 OR NEW.guest = 1
                OR EXISTS (SELECT 1 FROM pauses WHERE session = NEW.key AND closed_at IS NULL AND standing = 0)
                THEN NULL
            WHEN NEW.wakes_at IS NULL AND NEW.waiting IS NULL THEN 0
            ELSE NEW.wakes_at
        END;
    ELSIF NEW.pause_requested = 1 THEN
        NEW.ready_at := NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER pause_flag BEFORE UPDATE OF pause_requested, pause_mode ON sessions
FOR EACH ROW EXECUTE FUNCTION follow_pause_flag();

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
        WHEN pause_requested = 1 OR (ended IS NULL AND exempt < coalesce((SELECT round FROM standing_pause), 0))
            OR EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0)
            THEN CASE WHEN holder IS NULL THEN 'paused' ELSE 'pausing' END
        WHEN ended = 'failed' THEN ended
        WHEN holder IS NOT NULL THEN 'running'
        WHEN wakes_at <= microseconds_now() THEN 'ready'
        WHEN waiting IS NOT NULL THEN 'waiting'
        WHEN wakes_at IS NOT NULL THEN 'sleeping'
        WHEN seq <= 1 THEN 'created'
        ELSE 'ready'
    END AS status,
    (pause_requested = 1 OR (ended IS NULL AND exempt < coalesce((SELECT round FROM standing_pause), 0)))
        AS pause_requested,
    CASE
        WHEN (ended IS NULL AND exempt < coalesce((SELECT round FROM standing_pause), 0))
            AND (SELECT mode FROM standing_pause) = 'abort' THEN 'abort'
        ELSE pause_mode
    END AS pause_mode,
    cancel_requested = 1 AS cancel_requested,
    owner,
    tags,
    failure,
    progress,
    (spent_usd + coalesce((SELECT sum(usd) FROM charges WHERE session = key), 0)) / 1000000.0 AS spent_usd,
    to_timestamp(created_at / 1000000.0) AS created_at,
    to_timestamp(updated_at / 1000000.0) AS updated_at
FROM sessions;

-- Like `pause`, this does not pause sessions that are completed or cancelled: such a row is left out of RETURNING. Like
-- `resume`, clearing the flag exempts the session from the pause of everything.
CREATE FUNCTION pause_by_hand() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    found sessions%ROWTYPE;
BEGIN
    SELECT * INTO found FROM sessions WHERE session_id = NEW.session_id FOR UPDATE;
    IF NEW.pause_requested AND found.ended IN ('completed', 'cancelled') THEN
        RETURN NULL;
    END IF;
    UPDATE sessions SET pause_requested = NEW.pause_requested::int WHERE key = found.key;
    UPDATE store SET asked = asked + 1;
    PERFORM pg_notify('pausepoint_' || uuid, '') FROM store;
    IF NOT NEW.pause_requested THEN
        UPDATE pauses SET closed_at = microseconds_now()
        WHERE session = found.key AND closed_at IS NULL AND standing = (SELECT epoch FROM standing_pause);
        UPDATE sessions SET exempt = (SELECT round FROM standing_pause)
        WHERE key = found.key AND (ended IS NULL OR ended = 'failed') AND EXISTS (SELECT 1 FROM standing_pause);
        -- What waits for nothing becomes due, so that an engine picks it up.
        UPDATE sessions SET wakes_at = 0 WHERE key = found.key AND OLD.pause_requested AND ready_at = 0;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER pause_by_hand INSTEAD OF UPDATE ON workflow_states
FOR EACH ROW EXECUTE FUNCTION pause_by_hand();

-- The sessions that are to pause. Inserting an id pauses that session; unlike an UPDATE of the view above, which cannot
-- fail for a row that it does not find, it raises an error if there is nothing to pause. Deleting an id withdraws it.
CREATE VIEW pause_requests AS SELECT session_id, status FROM workflow_states WHERE pause_requested;

CREATE FUNCTION pause_one_by_hand() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    found sessions%ROWTYPE;
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE workflow_states SET pause_requested = false WHERE session_id = OLD.session_id;
        RETURN OLD;
    END IF;
    SELECT * INTO found FROM sessions WHERE session_id = NEW.session_id;
    IF found.key IS NULL THEN
        RAISE 'There is no session with this id. List the ids: SELECT session_id FROM workflow_states.';
    ELSIF found.ended IN ('completed', 'cancelled') THEN
        RAISE 'The session has ended, so there is nothing to pause.';
    END IF;
    UPDATE workflow_states SET pause_requested = true WHERE session_id = NEW.session_id;
    RETURN NEW;
END $$;

CREATE TRIGGER pause_one_by_hand INSTEAD OF INSERT OR DELETE ON pause_requests
FOR EACH ROW EXECUTE FUNCTION pause_one_by_hand();
