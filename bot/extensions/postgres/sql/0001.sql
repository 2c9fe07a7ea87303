-- The store of many workers. `json`, not `jsonb`: it keeps the very bytes, which files and back must give again, and
-- takes \u0000. Never look inside the JSON of what people wrote: select by plain columns.

CREATE TABLE meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema int NOT NULL,
    min_reader int NOT NULL,
    store_id uuid NOT NULL DEFAULT gen_random_uuid(),
    timeline text NOT NULL,
    ready boolean NOT NULL DEFAULT true,
    -- Where the store has gone, if it was moved; nobody starts on it then.
    moved_to text,
    -- Which server and tables a store was last used on. They are others after a dump was restored, or after a replica or
    -- an earlier state of the server took over: then the platforms may know of more than the store does.
    identity text,
    restored_at timestamptz
);
INSERT INTO meta (schema, min_reader, timeline) VALUES (1, 1, left(pg_walfile_name(pg_current_wal_lsn()), 8));

CREATE SEQUENCE worker_id AS int;

CREATE TABLE worker (
    id int PRIMARY KEY,
    alive_until timestamptz NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    status json,
    -- How many messages without an outcome it has, null if it takes no more: one with many more than the others leaves
    -- new threads to them.
    pending int DEFAULT 0,
    -- What the names of its connections have in common, and when another worker first saw none of them; its next beat
    -- makes that null again.
    tag text,
    missing_at timestamptz
);

CREATE TABLE thread (
    id text PRIMARY KEY,
    owner int,
    epoch bigint NOT NULL,
    generation int NOT NULL DEFAULT 0,
    changed_at timestamptz,
    -- Whether the list of its files was ever stored: an empty one is not one from before the database.
    files_stored boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX thread_owner ON thread (owner) WHERE owner IS NOT NULL;

-- Not partitioned by month, as the audit and spending are: a message goes with its thread when that has been quiet, and
-- not by its own age, and one unique key over all months is what keeps it from being answered twice.
CREATE TABLE message (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    key text PRIMARY KEY,
    thread text NOT NULL,
    received json,
    started json,
    intent json,
    posted json,
    settled json,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz,
    outcome text,
    -- Its line in the history that came from files is there.
    logged boolean NOT NULL DEFAULT false,
    over_rate boolean NOT NULL DEFAULT false,
    -- Whether nobody owned the thread when the message was stored: nobody has begun to serve it.
    unowned boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX message_owed ON message (thread, seq) WHERE settled IS NULL;
CREATE INDEX message_thread ON message (thread, seq);
CREATE INDEX message_end ON message (outcome, settled_at) WHERE outcome IN ('dead_letter', 'failed', 'undelivered');

-- A second id of a message leads to its own.
CREATE TABLE alias (key text PRIMARY KEY, message text NOT NULL);

-- Edits and deletions on their way to the worker that owns the thread.
CREATE TABLE mail (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thread text NOT NULL, event json NOT NULL);

CREATE TABLE context (
    thread text,
    generation int,
    n int,
    line json NOT NULL,
    PRIMARY KEY (thread, generation, n)
);

-- Lines of the threads' histories for people, as the files had them. A message that they tell of is `logged`.
CREATE TABLE log (thread text, n int, line json NOT NULL, PRIMARY KEY (thread, n));

-- Rates that all workers share. Who takes more than there is leaves a debt, and waits until it is paid: the next one
-- waits longer. What a crash of the server loses is full again.

CREATE UNLOGGED TABLE bucket (
    name text PRIMARY KEY,
    level float8 NOT NULL,
    at timestamptz NOT NULL,
    used float8 NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Money: what calls may cost and did cost, for all workers. Amounts are micro-dollars. Whoever changes accounts locks
-- them first, in their order, and only then looks at what is there: the same statement sent twice counts once.

CREATE SEQUENCE spending_seq AS bigint INCREMENT 100;

-- The lines of the ledger, as in the files of one machine.
CREATE TABLE spending (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    line json NOT NULL,
    -- The file of a line that came from files; these have numbers below 0, in their order.
    part text
);

CREATE TABLE account (
    scope text,
    key text,
    spent bigint NOT NULL DEFAULT 0,
    granted bigint NOT NULL DEFAULT 0,
    prompt bigint NOT NULL DEFAULT 0,
    cached bigint NOT NULL DEFAULT 0,
    output bigint NOT NULL DEFAULT 0,
    said text NOT NULL DEFAULT '',
    day text NOT NULL DEFAULT '',
    reserved bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE reservation (
    seq bigint PRIMARY KEY,
    worker int NOT NULL,
    scopes text[] NOT NULL,
    keys text[] NOT NULL,
    micros bigint NOT NULL,
    day text NOT NULL,
    -- A call that its worker's death cuts short costs its prompt, and its output by the time until it is found.
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    at_once bigint,
    per_s bigint NOT NULL DEFAULT 0
);

-- Small values of all workers.

CREATE TABLE slot (name text PRIMARY KEY, rev bigint NOT NULL, body json NOT NULL) WITH (fillfactor = 50);

-- What one worker does for all: read the history of a platform, hold its only session, send scheduled messages.
CREATE TABLE role (name text PRIMARY KEY, worker int NOT NULL);

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    line json NOT NULL,
    -- A batch whose answer was lost is sent again.
    digest bytea UNIQUE
);

-- How far each worker has read the channels of a transport. The rows of one that is gone are taken over by another.
CREATE TABLE mark (
    transport text,
    worker int,
    body bytea NOT NULL,
    PRIMARY KEY (transport, worker)
);

-- Who reads a channel after a gap, and what was read last: one worker reads for all. Times are the platform's.
CREATE TABLE reading (
    transport text,
    channel text,
    worker int NOT NULL,
    since numeric NOT NULL,
    began numeric NOT NULL,
    upto text,
    PRIMARY KEY (transport, channel)
);

-- Files of threads: each part of 1 MiB lies under its own SHA-256, so that no content can stand for another.

CREATE TABLE blob (
    sha bytea PRIMARY KEY,
    data bytea NOT NULL CHECK (sha256(data) = sha),
    used_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE file (
    thread text,
    path bytea,
    part int,
    sha bytea NOT NULL,
    mode int NOT NULL,
    PRIMARY KEY (thread, path, part)
);
CREATE INDEX file_sha ON file (sha);
