-- The store of many workers. `json`, not `jsonb`: it keeps the very bytes, which files and back must give again, and
-- takes \u0000. Never look inside the JSON of what people wrote: select by plain columns.

CREATE TABLE meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema int NOT NULL,
    min_reader int NOT NULL,
    store_id uuid NOT NULL DEFAULT gen_random_uuid(),
    timeline text NOT NULL,
    ready boolean NOT NULL DEFAULT true
);
INSERT INTO meta (schema, min_reader, timeline) VALUES (1, 1, left(pg_walfile_name(pg_current_wal_lsn()), 8));

CREATE SEQUENCE worker_id AS int;

CREATE TABLE worker (
    id int PRIMARY KEY,
    alive_until timestamptz NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    status json
);

CREATE TABLE thread (
    id text PRIMARY KEY,
    owner int,
    epoch bigint NOT NULL,
    generation int NOT NULL DEFAULT 0,
    changed_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX thread_owner ON thread (owner) WHERE owner IS NOT NULL;

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
    outcome text
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

-- Makes messages durable, any worker's. A thread that nobody owns becomes the receiver's; `me` is null for a worker
-- that takes no more. The threads are locked before anything is looked up and `seq` is drawn: within a thread the order
-- of commits is that of `seq`, and of two copies with different ids the second finds the first. A message that is known
-- by one of its ids is not new.
CREATE FUNCTION receive(me int, keys text[], threads text[], aliases text[], bodies text[])
RETURNS TABLE (key text, new boolean, thread text, owner int, epoch bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO thread AS t (id, owner, epoch)
    SELECT DISTINCT g.thread, me, (me IS NOT NULL)::int FROM unnest(threads) g (thread) ORDER BY g.thread
    ON CONFLICT (id) DO UPDATE SET owner = COALESCE(t.owner, excluded.owner),
        epoch = t.epoch + (t.owner IS NULL AND excluded.owner IS NOT NULL)::int;
    RETURN QUERY WITH given AS (
        SELECT g.* FROM unnest(keys, threads, aliases, bodies) WITH ORDINALITY g (key, thread, alias, body, n)
    ), m AS (
        INSERT INTO message (key, thread, received)
        SELECT g.key, g.thread, g.body::json FROM given g
        WHERE NOT EXISTS (SELECT FROM alias a WHERE a.key IN (g.key, g.alias))
          AND NOT EXISTS (SELECT FROM message o WHERE o.key = g.alias)
        ORDER BY g.n ON CONFLICT (key) DO NOTHING RETURNING message.key
    ), a AS (
        INSERT INTO alias (key, message) SELECT g.alias, g.key FROM given g JOIN m ON m.key = g.key
        WHERE g.alias IS NOT NULL ON CONFLICT DO NOTHING
    )
    SELECT g.key, g.key IN (SELECT m.key FROM m), g.thread, t.owner, t.epoch
    FROM given g JOIN thread t ON t.id = g.thread ORDER BY g.n;
END
$$;

-- Writes a batch for the threads that `me` still owns at the given epochs, and returns these: one transaction, which
-- gives the same result when it is sent again. `first_places` are the first lines of conversations that have changed.
CREATE FUNCTION apply(
    me int, threads text[], epochs bigint[],
    keys text[], receipts text[], starts text[], intents text[], posts text[], endings text[], outcomes text[],
    saved text[], first_places int[], line_threads text[], line_places int[], lines text[]
) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    owned text[];
    lost text[];
BEGIN
    SELECT array_agg(held.id) INTO owned FROM (
        SELECT t.id FROM thread t JOIN unnest(threads, epochs) g (id, epoch) ON g.id = t.id AND g.epoch = t.epoch
        WHERE t.owner = me ORDER BY t.id FOR NO KEY UPDATE OF t
    ) held;
    lost := ARRAY(SELECT unnest(threads) EXCEPT SELECT unnest(owned));
    -- By its key alone, and nothing that an index has: the planner knows neither the arrays nor a young table, and would
    -- compare each row with each record.
    UPDATE message m SET
        received = COALESCE(g.received::json, m.received),
        started = COALESCE(g.started::json, m.started),
        intent = COALESCE(g.intent::json, m.intent),
        posted = COALESCE(g.posted::json, m.posted),
        settled = g.settled::json,
        settled_at = CASE WHEN g.settled IS NULL THEN NULL ELSE clock_timestamp() END,
        outcome = g.outcome
    FROM unnest(keys, receipts, starts, intents, posts, endings, outcomes)
        g (key, received, started, intent, posted, settled, outcome)
    WHERE m.key = g.key AND m.outcome IS NULL AND m.thread <> ALL (lost);
    IF saved <> '{}' THEN
        UPDATE thread t SET changed_at = clock_timestamp() WHERE t.id = ANY (saved) AND t.id <> ALL (lost);
        DELETE FROM context c USING unnest(saved, first_places) s (thread, first), thread t
        WHERE t.id = s.thread AND t.id <> ALL (lost)
          AND c.thread = t.id AND c.generation = t.generation AND c.n >= s.first;
        INSERT INTO context (thread, generation, n, line)
        SELECT t.id, t.generation, l.n, l.line::json
        FROM unnest(line_threads, line_places, lines) l (thread, n, line) JOIN thread t ON t.id = l.thread
        WHERE t.id <> ALL (lost);
    END IF;
    RETURN QUERY SELECT unnest(owned);
END
$$;

-- Puts a thread's conversation aside. Its place is taken by a copy, or by an empty one.
CREATE FUNCTION next_generation(me int, which text, at_epoch bigint, copied boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    made int;
BEGIN
    UPDATE thread t SET generation = t.generation + 1
    WHERE t.id = which AND t.owner = me AND t.epoch = at_epoch RETURNING t.generation INTO made;
    IF made IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO context (thread, generation, n, line)
    SELECT c.thread, made, c.n, c.line FROM context c
    WHERE copied AND c.thread = which AND c.generation = made - 1;
    RETURN true;
END
$$;

-- Takes up threads of these transports that nobody owns and that hold a message without an outcome.
CREATE FUNCTION claim(me int, transports text[], room int) RETURNS TABLE (id text, epoch bigint) LANGUAGE sql AS $$
    WITH owed AS (SELECT DISTINCT m.thread FROM message m WHERE m.settled IS NULL),
    free AS (
        SELECT t.id FROM thread t JOIN owed o ON o.thread = t.id
        WHERE t.owner IS NULL AND split_part(t.id, ':', 1) = ANY (transports) ORDER BY t.id LIMIT room FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE thread t SET owner = me, epoch = t.epoch + 1 FROM free f WHERE t.id = f.id RETURNING t.id, t.epoch
$$;

-- Gives up threads without a pending message. Two statements: a message that came while the first one waited for the
-- lock is seen by the second.
CREATE FUNCTION release(me int, threads text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM thread t WHERE t.id = ANY (threads) AND t.owner = me ORDER BY t.id FOR NO KEY UPDATE;
    RETURN QUERY UPDATE thread t SET owner = NULL
    WHERE t.id = ANY (threads) AND t.owner = me
      AND NOT EXISTS (SELECT FROM message m WHERE m.thread = t.id AND m.settled IS NULL)
    RETURNING t.id;
END
$$;

-- Frees what dead workers own: those whose lease is past, or whose session is gone with its lock. Only a worker judges
-- whose own session is as old as a lease: when the server starts again, all locks are gone at once.
CREATE FUNCTION reap(me int, lease_s float8) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 7777 AND l.objid = me
          AND a.datname = current_database() AND a.backend_start < clock_timestamp() - lease_s * interval '1s'
    ) THEN
        RETURN;
    END IF;
    DELETE FROM worker w WHERE w.id <> me AND (w.alive_until < clock_timestamp() OR NOT EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 7777 AND l.objid = w.id
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    ));
    PERFORM FROM thread t WHERE t.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = t.owner)
    ORDER BY t.id FOR NO KEY UPDATE;
    RETURN QUERY UPDATE thread t SET owner = NULL
    WHERE t.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = t.owner) RETURNING t.id;
END
$$;
