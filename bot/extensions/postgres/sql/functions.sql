-- All functions, in their present form. They replace those of an earlier `FUNCTIONS` in one transaction: workers of before
-- go on with them. So a function whose parameters change keeps a form with the former ones for one release, and one whose
-- result changes gets a new name.
--
-- Within a function whoever changes rows locks them first, in their order, and only then looks at what is there. Batches
-- are loops over statements that find one row by its key: a plan is made once, when tables may still be young, and a
-- join with an array that was planned then reads the whole table ever after.

-- The first statement of a transaction that came through a pooler. One that was sent so long ago that its sender may
-- have given up is refused. The settings are those of other connections, for this transaction only.
CREATE OR REPLACE FUNCTION begin_pooled(until timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF clock_timestamp() > until THEN
        RAISE EXCEPTION 'the pooler passed the statement on too late' USING ERRCODE = 'query_canceled';
    END IF;
    PERFORM set_config('statement_timeout', '9s', true), set_config('synchronous_commit', 'on', true),
        set_config('idle_in_transaction_session_timeout', '2s', true),
        set_config('client_connection_check_interval', '1s', true);
END
$$;

-- Makes messages durable, any worker's. A thread that nobody owns becomes the receiver's; `me` is null for one that takes
-- no more. The threads are locked before anything is looked up and `seq` is drawn: within a thread the order of commits is
-- that of `seq`. A message that is known by one of its ids is not new. Two copies with different ids may begin a thread
-- each, and come to two workers at the same moment: the second waits for the first one's alias, and then finds it. What
-- goes beyond what its sender may have answered in a minute is marked; a limit of null is none. A new message comes with
-- its number and that of the message before it in its thread: an owner that has seen that one need not look.
CREATE OR REPLACE FUNCTION take_in(
    me int, keys text[], threads text[], aliases text[], bodies text[], senders text[], limits int[]
) RETURNS TABLE (
    key text, new boolean, thread text, owner int, epoch bigint, seq bigint, before bigint, over_rate boolean, unowned boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fresh text[] := '{}';
    place int;
    name text;
    most int;
    said text[];
BEGIN
    FOR name IN SELECT DISTINCT g.thread FROM unnest(threads) g (thread) ORDER BY g.thread LOOP
        INSERT INTO thread AS t (id, owner, epoch) VALUES (name, me, (me IS NOT NULL)::int)
        ON CONFLICT (id) DO UPDATE SET owner = COALESCE(t.owner, excluded.owner),
            epoch = t.epoch + (t.owner IS NULL AND excluded.owner IS NOT NULL)::int;
    END LOOP;
    FOR place IN SELECT g.n FROM unnest(aliases) WITH ORDINALITY g (alias, n) WHERE g.alias IS NOT NULL ORDER BY g.alias, g.n LOOP
        INSERT INTO alias (key, message) SELECT aliases[place], keys[place]
        WHERE NOT EXISTS (SELECT FROM alias a WHERE a.key = keys[place])
          AND NOT EXISTS (SELECT FROM message o WHERE o.key = keys[place])
          AND NOT EXISTS (SELECT FROM message o WHERE o.key = aliases[place]) ON CONFLICT DO NOTHING;
    END LOOP;
    FOR place IN 1 .. cardinality(keys) LOOP
        INSERT INTO message (key, thread, received, unowned)
        SELECT keys[place], t.id, bodies[place]::json, t.owner IS NULL FROM thread t WHERE t.id = threads[place]
          AND NOT EXISTS (SELECT FROM alias a WHERE a.key = keys[place])
          AND NOT EXISTS (SELECT FROM alias a WHERE a.key = aliases[place] AND a.message <> keys[place])
          AND NOT EXISTS (SELECT FROM message o WHERE o.key = aliases[place]) ON CONFLICT (key) DO NOTHING;
        IF FOUND THEN
            fresh := fresh || keys[place];
        END IF;
    END LOOP;
    FOR name, most, said IN
        SELECT g.sender, min(g.most), array_agg(g.key ORDER BY g.n)
        FROM unnest(keys, senders, limits) WITH ORDINALITY g (key, sender, most, n)
        WHERE g.most IS NOT NULL AND g.key = ANY (fresh) GROUP BY g.sender ORDER BY g.sender
    LOOP
        FOR place IN use_tokens('sender:' || name, most, cardinality(said)) + 1 .. cardinality(said) LOOP
            UPDATE message m SET over_rate = true WHERE m.key = said[place];
        END LOOP;
    END LOOP;
    FOR place IN 1 .. cardinality(keys) LOOP
        RETURN QUERY SELECT keys[place], m.key IS NOT NULL, t.id, t.owner, t.epoch, m.seq,
            (SELECT b.seq FROM message b WHERE b.thread = t.id AND b.seq < m.seq ORDER BY b.seq DESC LIMIT 1),
            m.over_rate, m.unowned
        FROM thread t LEFT JOIN message m ON m.key = keys[place] AND keys[place] = ANY (fresh) WHERE t.id = threads[place];
    END LOOP;
END
$$;

-- Writes a batch for the threads that `me` still owns at the given epochs, and returns these: one transaction, which
-- gives the same result when it is sent again. `first_places` are the first lines of conversations that have changed.
CREATE OR REPLACE FUNCTION apply(
    me int, threads text[], epochs bigint[],
    keys text[], receipts text[], starts text[], intents text[], posts text[], endings text[], outcomes text[],
    saved text[], first_places int[], line_threads text[], line_places int[], lines text[]
) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    lost text[] := '{}';
    told text[] := saved;
    place int;
    name text;
BEGIN
    FOR place IN SELECT g.n FROM unnest(threads) WITH ORDINALITY g (id, n) ORDER BY g.id LOOP
        PERFORM FROM thread t WHERE t.id = threads[place] AND t.epoch = epochs[place] AND t.owner = me FOR NO KEY UPDATE;
        IF FOUND THEN
            RETURN NEXT threads[place];
        ELSE
            lost := lost || threads[place];
        END IF;
    END LOOP;
    FOR place IN 1 .. cardinality(keys) LOOP
        UPDATE message m SET
            received = COALESCE(receipts[place]::json, m.received),
            started = COALESCE(starts[place]::json, m.started),
            intent = COALESCE(intents[place]::json, m.intent),
            posted = COALESCE(posts[place]::json, m.posted),
            settled = endings[place]::json,
            settled_at = CASE WHEN endings[place] IS NULL THEN NULL ELSE clock_timestamp() END,
            outcome = outcomes[place]
        WHERE m.key = keys[place] AND m.outcome IS NULL AND m.thread <> ALL (lost) RETURNING m.thread INTO name;
        IF FOUND AND endings[place] IS NOT NULL AND name <> ALL (told) THEN
            told := told || name;
        END IF;
    END LOOP;
    FOREACH name IN ARRAY told LOOP
        UPDATE thread t SET told_at = clock_timestamp(),
            changed_at = CASE WHEN t.id = ANY (saved) THEN clock_timestamp() ELSE t.changed_at END
        WHERE t.id = name AND t.id <> ALL (lost);
    END LOOP;
    FOR place IN 1 .. cardinality(saved) LOOP
        DELETE FROM context c WHERE c.thread = saved[place] AND c.n >= first_places[place] AND c.thread <> ALL (lost)
          AND c.generation = (SELECT t.generation FROM thread t WHERE t.id = saved[place]);
    END LOOP;
    FOR place IN 1 .. cardinality(lines) LOOP
        INSERT INTO context (thread, generation, n, line)
        SELECT t.id, t.generation, line_places[place], lines[place]::json FROM thread t
        WHERE t.id = line_threads[place] AND t.id <> ALL (lost);
    END LOOP;
END
$$;

-- Puts a thread's conversation aside. Its place is taken by a copy, or by an empty one.
CREATE OR REPLACE FUNCTION next_generation(me int, which text, at_epoch bigint, copied boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    made int;
BEGIN
    UPDATE thread t SET generation = t.generation + 1
    WHERE t.id = which AND t.owner = me AND t.epoch = at_epoch RETURNING t.generation INTO made;
    INSERT INTO context (thread, generation, n, line)
    SELECT c.thread, made, c.n, c.line FROM context c WHERE copied AND c.thread = which AND c.generation = made - 1;
    RETURN made IS NOT NULL;
END
$$;

-- Takes up threads of these transports that nobody owns and that hold a message without an outcome.
CREATE OR REPLACE FUNCTION claim(me int, transports text[], room int) RETURNS TABLE (id text, epoch bigint) LANGUAGE sql AS $$
    WITH owed AS (SELECT DISTINCT m.thread FROM message m WHERE m.settled IS NULL),
    free AS (
        SELECT t.id FROM thread t JOIN owed o ON o.thread = t.id
        WHERE t.owner IS NULL AND split_part(t.id, ':', 1) = ANY (transports) ORDER BY t.id LIMIT room FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE thread t SET owner = me, epoch = t.epoch + 1 FROM free f WHERE t.id = f.id RETURNING t.id, t.epoch
$$;

-- Gives up threads without a pending message. Two statements: a message that came while the first one waited for the
-- lock is seen by the second.
CREATE OR REPLACE FUNCTION release(me int, threads text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM thread t WHERE t.id = ANY (threads) AND t.owner = me ORDER BY t.id FOR NO KEY UPDATE;
    RETURN QUERY UPDATE thread t SET owner = NULL
    WHERE t.id = ANY (threads) AND t.owner = me
      AND NOT EXISTS (SELECT FROM message m WHERE m.thread = t.id AND m.settled IS NULL)
    RETURNING t.id;
END
$$;

-- Frees what dead workers own: those whose lease is past, or that have had neither a connection nor their lock for
-- `grace_s`. Returns those that are gone, and those that are missing so far. Only a worker judges whose own session is
-- as old as a lease: when the server starts again, all connections are gone at once.
CREATE OR REPLACE FUNCTION reap(me int, lease_s float8, grace_s float8) RETURNS TABLE (name text, is_gone boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    missing int[];
    missing_owners int[];
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 7777 AND l.objid = me
          AND a.datname = current_database() AND a.backend_start < clock_timestamp() - lease_s * interval '1s'
    ) THEN
        RETURN;
    END IF;
    missing := ARRAY(
        SELECT w.id FROM worker w WHERE w.id <> me AND NOT EXISTS (
            SELECT FROM pg_stat_activity a
            WHERE a.datname = current_database() AND split_part(a.application_name, ' ', 2) = w.tag
        ) AND NOT EXISTS (
            SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 7777 AND l.objid = w.id
              AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        )
    );
    UPDATE worker w SET missing_at = clock_timestamp() WHERE w.id = ANY (missing) AND w.missing_at IS NULL;
    RETURN QUERY DELETE FROM worker w WHERE w.id <> me AND (w.alive_until < clock_timestamp()
        OR (w.id = ANY (missing) AND w.missing_at < clock_timestamp() - grace_s * interval '1s')
    ) RETURNING w.name, true;
    -- Owner by owner, not thread by thread: live workers own many.
    WITH RECURSIVE o (owner) AS (
        SELECT min(t.owner) FROM thread t WHERE t.owner IS NOT NULL
        UNION ALL SELECT (SELECT min(t.owner) FROM thread t WHERE t.owner > o.owner) FROM o WHERE o.owner IS NOT NULL
    )
    SELECT array_agg(o.owner) INTO missing_owners FROM o WHERE NOT EXISTS (SELECT FROM worker w WHERE w.id = o.owner)
      AND o.owner IS NOT NULL;
    PERFORM FROM thread t WHERE t.owner = ANY (missing_owners) ORDER BY t.id FOR NO KEY UPDATE;
    UPDATE thread t SET owner = NULL
    WHERE t.owner = ANY (missing_owners) AND NOT EXISTS (SELECT FROM worker w WHERE w.id = t.owner);
    RETURN QUERY SELECT w.name, false FROM worker w WHERE w.id = ANY (missing);
END
$$;

-- A look around: reaps, and returns who is `gone` or `missing`; own threads with messages that are `owed`, with the last
-- of them, and own threads with `mail`; and one row if a thread of these transports is `free` that holds a message without
-- an outcome. The planner must not begin with the threads: only what is owed may cost.
CREATE OR REPLACE FUNCTION look(me int, lease_s float8, grace_s float8, transports text[])
RETURNS TABLE (what text, name text, epoch bigint, last bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT CASE WHEN r.is_gone THEN 'gone' ELSE 'missing' END, r.name, NULL::bigint, NULL::bigint
    FROM reap(me, lease_s, grace_s) r;
    RETURN QUERY SELECT 'owed', o.thread, t.epoch, o.last
    FROM (SELECT m.thread, max(m.seq) AS last FROM message m WHERE m.settled IS NULL GROUP BY m.thread) o
    CROSS JOIN LATERAL (SELECT t.epoch FROM thread t WHERE t.id = o.thread AND t.owner = me LIMIT 1) t;
    RETURN QUERY SELECT 'mail', l.thread, t.epoch, NULL::bigint FROM (SELECT DISTINCT m.thread FROM mail m) l
    CROSS JOIN LATERAL (SELECT t.epoch FROM thread t WHERE t.id = l.thread AND t.owner = me LIMIT 1) t;
    RETURN QUERY SELECT 'free', '', NULL::bigint, NULL::bigint WHERE EXISTS (
        SELECT FROM message m CROSS JOIN LATERAL (
            SELECT FROM thread t WHERE t.id = m.thread AND t.owner IS NULL
            AND split_part(t.id, ':', 1) = ANY (transports) LIMIT 1
        ) f WHERE m.settled IS NULL
    );
END
$$;

-- Takes one token, and returns the seconds until it may be used.
CREATE OR REPLACE FUNCTION take_token(of_name text, per_second float8, burst float8) RETURNS float8 LANGUAGE sql AS $$
    INSERT INTO bucket AS b (name, level, at) VALUES (of_name, burst - 1, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET at = clock_timestamp(), level =
        LEAST(burst, b.level + GREATEST(0, extract(epoch FROM clock_timestamp() - b.at)) * per_second) - 1
    RETURNING GREATEST(0, -b.level / per_second)
$$;

-- Uses up to so many tokens of a bucket that holds `size` and fills within a minute, and returns how many there were.
-- What is refused leaves no debt.
CREATE OR REPLACE FUNCTION use_tokens(of_name text, size float8, wanted float8) RETURNS float8 LANGUAGE sql AS $$
    INSERT INTO bucket AS b (name, level, at, used)
    VALUES (of_name, size - LEAST(wanted, size), clock_timestamp(), LEAST(wanted, size))
    ON CONFLICT (name) DO UPDATE SET (level, at, used) = (
        SELECT f.level - LEAST(wanted, floor(f.level)), clock_timestamp(), LEAST(wanted, floor(f.level))
        FROM (SELECT LEAST(size, b.level + GREATEST(0, extract(epoch FROM clock_timestamp() - b.at)) * size / 60) AS level) f
    )
    RETURNING b.used
$$;

-- Returns true if the worker is to report something: it did so before, or no other one did within so many seconds.
CREATE OR REPLACE FUNCTION claim_report(of_name text, me int, within_s float8) RETURNS SETOF boolean LANGUAGE sql AS $$
    INSERT INTO bucket AS b (name, level, at) VALUES ('report:' || of_name, me, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET level = me, at = clock_timestamp()
    WHERE b.level = me OR b.at < clock_timestamp() - within_s * interval '1s'
    RETURNING true
$$;

-- Deletes some content that no thread has named for an hour, and what has been full for long: that tells nothing any more.
CREATE OR REPLACE FUNCTION collect() RETURNS void LANGUAGE sql AS $$
    DELETE FROM blob b WHERE b.sha IN (
        SELECT o.sha FROM blob o WHERE o.used_at < clock_timestamp() - interval '1 hour'
          AND NOT EXISTS (SELECT FROM file f WHERE f.sha = o.sha) LIMIT 1000 FOR UPDATE SKIP LOCKED
    );
    DELETE FROM bucket b WHERE b.at < clock_timestamp() - interval '1 hour'
      AND (starts_with(b.name, 'sender:') OR starts_with(b.name, 'report:'))
      OR b.at < clock_timestamp() - interval '2 days' AND starts_with(b.name, 'first:')
$$;

-- As workers of the version before call it; they may share a database that this version made.
CREATE OR REPLACE FUNCTION collect_blobs() RETURNS void LANGUAGE sql AS $$ SELECT collect() $$;
CREATE OR REPLACE FUNCTION collect_buckets() RETURNS void LANGUAGE sql AS $$ SELECT collect() $$;

-- Makes the partitions of one month, given by its first day, unless they are there. What came for it before moves in.
-- They are attached when they are ready: that waits for nobody who uses the others.
CREATE OR REPLACE FUNCTION make_month(month date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one record;
    name text;
BEGIN
    FOR one IN SELECT g.kind, g.key, g.more, g.begins, g.ends FROM (SELECT (month + interval '1 month')::date AS next) n,
        LATERAL (VALUES
            ('audit', 'at', ', UNIQUE (digest)', month || ' 00:00+00', n.next || ' 00:00+00'),
            ('spending', 'seq', '', to_char(month, 'YYYYMM') || '0000000000', to_char(n.next, 'YYYYMM') || '0000000000')
        ) g (kind, key, more, begins, ends)
    LOOP
        name := one.kind || to_char(month, '_YYYY_MM');
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE %I%s)', name, one.kind, one.more);
        EXECUTE format(
            'WITH moved AS (DELETE FROM %1$I WHERE %2$I >= %3$L AND %2$I < %4$L RETURNING *) INSERT INTO %5$I SELECT * FROM moved',
            one.kind || '_default', one.key, one.begins, one.ends, name
        );
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', one.kind, name, one.begins, one.ends);
    END LOOP;
END
$$;

-- Makes the partitions of the running month and of two more, and lets the numbers of the ledger begin with the month.
CREATE OR REPLACE FUNCTION make_months() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    month CONSTANT date := date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC');
    number CONSTANT bigint := to_char(month, 'YYYYMM') || '0000000000';
BEGIN
    IF to_regclass('spending' || to_char(month + interval '2 months', '_YYYY_MM')) IS NULL
        OR EXISTS (SELECT FROM spending_seq s WHERE s.last_value < number)
    THEN
        PERFORM set_config('lock_timeout', '2s', true), pg_advisory_xact_lock(7777000);
        PERFORM make_month((month + n * interval '1 month')::date) FROM generate_series(0, 2) n;
        -- Only under the lock: a number that is set back would be drawn twice.
        PERFORM setval('spending_seq', number, false) FROM spending_seq s WHERE s.last_value < number;
    END IF;
END
$$;

-- The beginning of the month of `before`, or of the running one: what is older may go.
CREATE OR REPLACE FUNCTION month_of(before timestamptz) RETURNS timestamptz LANGUAGE sql AS $$
    SELECT date_trunc('month', LEAST(before, clock_timestamp()), 'UTC')
$$;

-- Returns the calls before the month of `before`, for `drop_months` in the same transaction: those that were counted as
-- sums by day and model, and one by one those whose cost nobody counted, without `usage`. Lines that cannot be read are
-- left out.
CREATE OR REPLACE FUNCTION calls_before(before timestamptz) RETURNS TABLE (
    place bigint, number bigint, at text, day text, model text, micros bigint, usage bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('lock_timeout', '2s', true), pg_advisory_xact_lock(7777000);
    RETURN QUERY WITH lines AS (
        SELECT s.seq, CASE WHEN strpos(s.line::text, '\u0000') = 0 THEN s.line END AS line FROM spending s
        WHERE s.at < month_of(before) AND s.seq > -1000000000000000
          AND NOT EXISTS (SELECT FROM reservation r WHERE r.seq = s.seq)
    ), calls AS MATERIALIZED (
        SELECT l.seq, l.line->>'kind' AS kind, (l.line->>'seq')::bigint AS number, l.line->>'at' AS at,
            l.line->'call'->>'turn' AS turn, l.line->'call'->>'day' AS day, l.line->'call'->>'model' AS model,
            (l.line->>'micros')::bigint AS micros, l.line->'usage' AS usage, (l.line->>'reserve')::bigint AS reserve
        FROM lines l WHERE l.line->>'kind' IN ('reserve', 'commit')
    )
    SELECT min(c.seq), min(c.number), min(c.at), c.day, c.model, sum(c.micros)::bigint, ARRAY[
        sum((c.usage->>'input')::bigint), sum((c.usage->>'output')::bigint), sum((c.usage->>'cache_read')::bigint),
        sum((c.usage->>'cache_write')::bigint), sum((c.usage->>'cache_write_1h')::bigint), sum((c.usage->>'hidden')::bigint)
    ]::bigint[] FROM calls c WHERE c.kind = 'commit' GROUP BY c.day, c.model, c.micros IS NULL
    UNION ALL
    SELECT c.seq, c.number, c.at, c.day, c.model, c.micros, NULL FROM calls c WHERE c.kind = 'reserve'
      AND NOT EXISTS (SELECT FROM calls e WHERE e.kind = 'commit' AND e.reserve = c.number)
      AND NOT EXISTS (
        SELECT FROM spending s WHERE split_part(split_part(s.line::text, '"turn":"', 2), '"', 1) = c.turn
          AND strpos(s.line::text, '"reserve":' || c.number || ',') > 0
      );
END
$$;

-- Drops what is before the month of `before` of the audit or of spending, and returns how many rows went: whole
-- partitions, and rows where a partition holds later ones too. What is reserved stays. `sums` are the lines that take
-- the place of calls, each with the number of the first one and its time. Nobody waits for it longer than two seconds:
-- it fails while somebody reads for longer.
CREATE OR REPLACE FUNCTION drop_months(kind text, before timestamptz, places bigint[], times text[], sums text[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    until CONSTANT timestamptz := month_of(before);
    old CONSTANT text := 'r.at < $1' || CASE kind WHEN 'spending'
        THEN ' AND NOT EXISTS (SELECT FROM reservation o WHERE o.seq = r.seq)' ELSE '' END;
    name name;
    found bigint;
    stays boolean;
    gone bigint := 0;
BEGIN
    PERFORM set_config('lock_timeout', '2s', true), pg_advisory_xact_lock(7777000);
    FOR name IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = kind::regclass AND c.relname <> 'spending_sums' ORDER BY 1
    LOOP
        EXECUTE format('SELECT (SELECT count(*) FROM %1$I r WHERE %2$s), EXISTS (SELECT FROM %1$I r WHERE NOT (%2$s))', name, old)
        INTO found, stays USING until;
        gone := gone + found;
        -- Names of months are in their order, and that of the default partition is behind them.
        IF NOT stays AND name COLLATE "C" < kind || to_char(until AT TIME ZONE 'UTC', '_YYYY_MM') THEN
            EXECUTE format('DROP TABLE %I', name);
        ELSIF found > 0 THEN
            EXECUTE format('DELETE FROM %I r WHERE %s', name, old) USING until;
        END IF;
    END LOOP;
    INSERT INTO spending (seq, at, line)
    SELECT g.place - 10000000000000000, g.at::timestamptz, g.line::json FROM unnest(places, times, sums) g (place, at, line)
    ON CONFLICT DO NOTHING;
    RETURN gone;
END
$$;

CREATE OR REPLACE FUNCTION lock_accounts(scopes text[], keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT DISTINCT g.scope, g.key FROM unnest(scopes, keys) g (scope, key) ORDER BY g.scope, g.key LOOP
        PERFORM FROM account a WHERE a.scope = one.scope AND a.key = one.key FOR NO KEY UPDATE;
        IF NOT FOUND THEN  -- made at the same moment by another one: locked as well
            INSERT INTO account AS a (scope, key) VALUES (one.scope, one.key)
            ON CONFLICT (scope, key) DO UPDATE SET day = a.day;
        END IF;
    END LOOP;
END
$$;

-- Sets aside the most that a call can cost if it fits under all caps (null is none), and returns the accounts with
-- whether it did. A worker that was taken for dead reserves nothing, and gets no rows.
CREATE OR REPLACE FUNCTION reserve(
    me int, which bigint, scopes text[], keys text[], caps bigint[], today text, most bigint, entry text,
    prompt_cost bigint, second_cost bigint
) RETURNS TABLE (fits boolean, of account) LANGUAGE plpgsql AS $$
DECLARE
    fitting boolean;
BEGIN
    PERFORM FROM worker w WHERE w.id = me FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM lock_accounts(scopes, keys);
    fitting := EXISTS (SELECT FROM spending s WHERE s.seq = which);
    IF NOT fitting THEN
        fitting := NOT EXISTS (
            SELECT FROM unnest(scopes, keys, caps) g (scope, key, cap) WHERE g.cap + (
                SELECT a.granted - a.spent - a.reserved FROM account a WHERE a.scope = g.scope AND a.key = g.key
            ) < most
        );
        IF fitting THEN
            FOR place IN 1 .. cardinality(scopes) LOOP
                UPDATE account a SET reserved = a.reserved + most WHERE a.scope = scopes[place] AND a.key = keys[place];
            END LOOP;
            INSERT INTO reservation (seq, worker, scopes, keys, micros, day, at_once, per_s)
            VALUES (which, me, scopes, keys, most, today, prompt_cost, second_cost);
            INSERT INTO spending (seq, line) VALUES (which, entry::json);
        END IF;
    END IF;
    RETURN QUERY SELECT fitting, (SELECT a FROM account a WHERE a.scope = g.scope AND a.key = g.key)
    FROM unnest(scopes, keys) g (scope, key);
END
$$;

-- Counts what calls did cost, in place of their reservations. One that lapsed counts in full already. Each of the
-- accounts comes with the number of its call, from 1, and the accounts are returned.
CREATE OR REPLACE FUNCTION commit_calls(
    seqs bigint[], entries text[], reserves bigint[], costs bigint[], prompts bigint[], cached_prompts bigint[],
    outputs bigint[], days text[], calls int[], scopes text[], keys text[]
) RETURNS SETOF account LANGUAGE plpgsql AS $$
DECLARE
    freed bigint[] := '{}';
    held bigint;
    one record;
BEGIN
    FOR place IN 1 .. cardinality(seqs) LOOP
        INSERT INTO spending (seq, line) VALUES (seqs[place], entries[place]::json) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            DELETE FROM reservation r WHERE r.seq = reserves[place] RETURNING r.micros INTO held;
            freed[place] := held;
            costs[place] := CASE WHEN reserves[place] = 0 OR held IS NOT NULL THEN costs[place] END;
        ELSE  -- sent again
            calls := array_replace(calls, place, NULL);
        END IF;
    END LOOP;
    FOR one IN
        SELECT k.scope, k.key, max(days[k.n]) AS day, COALESCE(sum(freed[k.n]), 0) AS freed,
            COALESCE(sum(costs[k.n]), 0) AS cost, COALESCE(sum(prompts[k.n]), 0) AS prompt,
            COALESCE(sum(cached_prompts[k.n]), 0) AS cached, COALESCE(sum(outputs[k.n]), 0) AS output
        FROM unnest(calls, scopes, keys) k (n, scope, key) GROUP BY k.scope, k.key ORDER BY k.scope, k.key
    LOOP
        RETURN QUERY INSERT INTO account AS a (scope, key, reserved, spent, prompt, cached, output, day)
        VALUES (one.scope, one.key, -one.freed, one.cost, one.prompt, one.cached, one.output, COALESCE(one.day, ''))
        ON CONFLICT (scope, key) DO UPDATE SET reserved = a.reserved + excluded.reserved, spent = a.spent + excluded.spent,
            prompt = a.prompt + excluded.prompt, cached = a.cached + excluded.cached, output = a.output + excluded.output,
            day = COALESCE(one.day, a.day)
        RETURNING a.*;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION grant_more(which bigint, of_scope text, of_key text, micros bigint, entry text)
RETURNS SETOF account LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_accounts(ARRAY[of_scope], ARRAY[of_key]);
    INSERT INTO spending (seq, line) VALUES (which, entry::json) ON CONFLICT DO NOTHING;
    UPDATE account a SET granted = a.granted + micros, said = '' WHERE FOUND AND a.scope = of_scope AND a.key = of_key;
    RETURN QUERY SELECT a.* FROM account a WHERE a.scope = of_scope AND a.key = of_key;
END
$$;

-- Takes a warning as said, and returns the account with whether nobody had said it before.
CREATE OR REPLACE FUNCTION warn(which bigint, of_scope text, of_key text, level text, entry text)
RETURNS TABLE (new boolean, of account) LANGUAGE plpgsql AS $$
DECLARE
    levels CONSTANT text[] := ARRAY['', 'warning', 'passed'];
BEGIN
    PERFORM lock_accounts(ARRAY[of_scope], ARRAY[of_key]);
    UPDATE account a SET said = level WHERE a.scope = of_scope AND a.key = of_key
      AND array_position(levels, level) > array_position(levels, a.said) AND NOT EXISTS (SELECT FROM spending s WHERE s.seq = which);
    INSERT INTO spending (seq, line) SELECT which, entry::json WHERE FOUND;
    RETURN QUERY SELECT EXISTS (SELECT FROM spending s WHERE s.seq = which), a FROM account a
    WHERE a.scope = of_scope AND a.key = of_key;
END
$$;

-- Counts what calls of dead workers can have cost, and returns their lines with it. A worker that is cut off from the
-- database is taken for dead while it lives: within a lease of 3 s it ends its calls, and they end a second later.
CREATE OR REPLACE FUNCTION lapse() RETURNS TABLE (entry text, cost bigint) LANGUAGE plpgsql AS $$
DECLARE
    dead bigint[];
BEGIN
    SELECT array_agg(d.seq) INTO dead FROM (
        SELECT r.seq FROM reservation r WHERE NOT EXISTS (SELECT FROM worker w WHERE w.id = r.worker) ORDER BY r.seq FOR UPDATE OF r
    ) d;
    PERFORM lock_accounts(array_agg(k.scope), array_agg(k.key))
    FROM reservation r, unnest(r.scopes, r.keys) k (scope, key) WHERE r.seq = ANY (dead);
    RETURN QUERY WITH gone AS (
        DELETE FROM reservation r WHERE r.seq = ANY (dead) RETURNING r.*, LEAST(r.micros, CASE
            WHEN r.at_once IS NULL OR r.at > clock_timestamp() THEN r.micros
            ELSE r.at_once + ceil((EXTRACT(epoch FROM clock_timestamp() - r.at) + 4) * r.per_s)
        END)::bigint AS charged
    ), amounts AS (
        SELECT k.scope, k.key, sum(g.micros) AS freed, sum(g.charged) AS charged, max(g.day) AS day
        FROM gone g, unnest(g.scopes, g.keys) k (scope, key) GROUP BY k.scope, k.key
    ), changed AS (
        UPDATE account a SET reserved = a.reserved - m.freed, spent = a.spent + m.charged, day = m.day
        FROM amounts m WHERE a.scope = m.scope AND a.key = m.key
    )
    SELECT s.line::text, g.charged FROM gone g JOIN spending s ON s.seq = g.seq;
END
$$;

-- Replaces the value that the caller has seen as `seen`, and returns its new revision; nothing if it was another's turn.
CREATE OR REPLACE FUNCTION replace_slot(of_name text, seen bigint, new_body text) RETURNS SETOF bigint LANGUAGE sql AS $$
    INSERT INTO slot AS s (name, rev, body) SELECT of_name, 1, new_body::json
    WHERE seen = 0 OR EXISTS (SELECT FROM slot t WHERE t.name = of_name)
    ON CONFLICT (name) DO UPDATE SET rev = s.rev + 1, body = excluded.body WHERE s.rev = seen
    RETURNING s.rev
$$;

-- Returns whether the role is the worker's. A dead worker's is anybody's.
CREATE OR REPLACE FUNCTION take_role(me int, of_name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM worker w WHERE w.id = me) THEN
        RETURN false;
    END IF;
    INSERT INTO role (name, worker) VALUES (of_name, me) ON CONFLICT DO NOTHING;
    PERFORM FROM role r WHERE r.name = of_name FOR NO KEY UPDATE;
    UPDATE role r SET worker = me
    WHERE r.name = of_name AND NOT EXISTS (SELECT FROM worker w WHERE w.id = r.worker);
    RETURN EXISTS (SELECT FROM role r WHERE r.name = of_name AND r.worker = me);
END
$$;

-- Returns '' if the worker is to read the channel: it is noted as its reader from `begins` on then. Returns null while
-- another one reads it. Otherwise one has read all since `since`, and began after `due`: returns up to where.
CREATE OR REPLACE FUNCTION claim_reading(
    me int, of_transport text, of_channel text, since numeric, begins numeric, due numeric, now numeric
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    last reading;
BEGIN
    INSERT INTO reading VALUES (of_transport, of_channel, me, begins, now) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN '';
    END IF;
    SELECT * INTO last FROM reading r WHERE r.transport = of_transport AND r.channel = of_channel FOR UPDATE;
    IF last.upto IS NULL AND last.worker <> me AND EXISTS (SELECT FROM worker w WHERE w.id = last.worker) THEN
        RETURN NULL;
    ELSIF last.upto IS NOT NULL AND last.since <= since AND last.began > due THEN
        RETURN last.upto;
    END IF;
    UPDATE reading r SET worker = me, since = begins, began = now, upto = NULL
    WHERE r.transport = of_transport AND r.channel = of_channel;
    RETURN '';
END
$$;

-- Replaces the list of a thread's files for its owner. Returns the contents that are not there any more, and null for
-- one who does not own the thread at that epoch; nothing is changed then.
CREATE OR REPLACE FUNCTION replace_files(me int, of_thread text, at_epoch bigint, paths bytea[], parts int[], shas bytea[], modes int[])
RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE
    gone bytea[];
BEGIN
    PERFORM FROM thread t WHERE t.id = of_thread AND t.owner = me AND t.epoch = at_epoch FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NEXT NULL;
        RETURN;
    END IF;
    -- In one order everywhere, or two lists with the same contents would wait for each other.
    PERFORM FROM blob b WHERE b.sha = ANY (shas) ORDER BY b.sha FOR NO KEY UPDATE;
    UPDATE blob b SET used_at = clock_timestamp() WHERE b.sha = ANY (shas);
    gone := ARRAY(SELECT unnest(shas) EXCEPT SELECT b.sha FROM blob b WHERE b.sha = ANY (shas));
    IF gone = '{}' THEN
        DELETE FROM file f WHERE f.thread = of_thread;
        INSERT INTO file (thread, path, part, sha, mode)
        SELECT of_thread, g.* FROM unnest(paths, parts, shas, modes) g;
        UPDATE thread t SET files_stored = true WHERE t.id = of_thread AND NOT t.files_stored;
    END IF;
    RETURN QUERY SELECT unnest(gone);
END
$$;

-- Erases parts of threads that `me` owns (null: that nobody owns), and returns those that it left: they are not, or are
-- owed something, or something was said there after `until`. A thread keeps its row, and its next conversation is a later
-- one: what was said before is not read into it. Keys of a day's messages stay, for a platform that delivers them again.
-- `memories` are the names of the threads' own texts of the memory; they go with the conversation. Words are noted again.
CREATE OR REPLACE FUNCTION forget_parts(me int, threads text[], memories text[], parts text[], until timestamptz)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    held text[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7777001);
    PERFORM FROM thread t WHERE t.id = ANY (threads) ORDER BY t.id FOR NO KEY UPDATE;
    held := ARRAY(
        SELECT t.id FROM thread t
        WHERE t.id = ANY (threads) AND t.owner IS NOT DISTINCT FROM me AND COALESCE(t.changed_at <= until, true)
          AND NOT EXISTS (SELECT FROM message m WHERE m.thread = t.id
              AND (me IS NULL AND m.settled IS NULL OR GREATEST(m.at, m.settled_at) > until))
    );
    DELETE FROM vocabulary v WHERE v.thread = ANY (held);
    IF 'conversation' = ANY (parts) THEN
        DELETE FROM context c WHERE c.thread = ANY (held);
        DELETE FROM slot s USING unnest(threads, memories) g (thread, name) WHERE s.name = g.name AND g.thread = ANY (held);
        UPDATE thread t SET generation = t.generation + 1 WHERE t.id = ANY (held);
    END IF;
    IF 'log' = ANY (parts) THEN
        PERFORM forget_messages(ARRAY(SELECT m.key FROM message m WHERE m.thread = ANY (held) AND m.settled IS NOT NULL));
        DELETE FROM log l WHERE l.thread = ANY (held);
        DELETE FROM mail l WHERE l.thread = ANY (held);
    END IF;
    PERFORM forget_files(f.thread, array_agg(f.path)) FROM (
        SELECT DISTINCT f.thread, f.path FROM file f WHERE f.thread = ANY (held)
          AND CASE WHEN starts_with(encode(f.path, 'escape'), 'attachments/') THEN 'attachments' ELSE 'workspace' END = ANY (parts)
    ) f GROUP BY f.thread;
    UPDATE thread t SET changed_at = NULL, told_at = NULL WHERE t.id = ANY (held)
      AND NOT EXISTS (SELECT FROM context c WHERE c.thread = t.id) AND NOT EXISTS (SELECT FROM message m WHERE m.thread = t.id)
      AND NOT EXISTS (SELECT FROM log l WHERE l.thread = t.id) AND NOT EXISTS (SELECT FROM file f WHERE f.thread = t.id);
    RETURN QUERY SELECT unnest(threads) EXCEPT SELECT unnest(held);
END
$$;

CREATE OR REPLACE FUNCTION forget_messages(keys text[]) RETURNS void LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM message m WHERE m.key = ANY (keys) AND m.settled IS NOT NULL RETURNING m.key, m.at)
    INSERT INTO alias (key, message)
    SELECT g.key, g.key FROM gone g WHERE g.at > clock_timestamp() - interval '1 day' ON CONFLICT DO NOTHING
$$;

-- Takes files out of a thread's list, with the content that nobody else names. Two statements: who names it meanwhile
-- has locked it, and is seen by the second.
CREATE OR REPLACE FUNCTION forget_files(of_thread text, paths bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    gone bytea[];
BEGIN
    WITH dropped AS (DELETE FROM file f WHERE f.thread = of_thread AND f.path = ANY (paths) RETURNING f.sha)
    SELECT array_agg(DISTINCT d.sha) INTO gone FROM dropped d;
    PERFORM FROM blob b WHERE b.sha = ANY (gone) ORDER BY b.sha FOR UPDATE;
    DELETE FROM blob b WHERE b.sha = ANY (gone) AND NOT EXISTS (SELECT FROM file f WHERE f.sha = b.sha);
END
$$;

-- The string of a name in a line, up to the name that follows: what people say may hold an escaped quotation mark. The text
-- is looked into and not the JSON, which fails at an escaped NUL.
CREATE OR REPLACE FUNCTION said(line json, name text, next text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT split_part(split_part(line::text, '"' || name || '":"', 2), '","' || next || '":', 1)
$$;

-- For two seconds, writes down the words of threads that have been quiet for a day. Nobody else does so, or forgets,
-- meanwhile. A very long thread would take too long.
CREATE OR REPLACE FUNCTION note_words() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7777001) THEN
        RETURN;
    END IF;
    FOR one IN SELECT g.* FROM thread t, LATERAL (SELECT t.id, COALESCE(t.told_at, t.changed_at) AS at) g
        WHERE g.at < clock_timestamp() - interval '1 day'
          AND g.at IS DISTINCT FROM (SELECT v.at FROM vocabulary v WHERE v.thread = t.id)
          AND NOT EXISTS (SELECT FROM message m WHERE m.thread = t.id OFFSET 5000)
    LOOP
        EXIT WHEN clock_timestamp() > statement_timestamp() + interval '2 seconds';
        INSERT INTO vocabulary SELECT one.id, one.at, COALESCE(string_agg(DISTINCT w.word, ' '), '') FROM (
            SELECT said(l.line, 'text', 'outcome') FROM log l WHERE l.thread = one.id
            UNION ALL SELECT unnest(ARRAY[
                said(m.received, 'text', 'sent_at'), said(m.intent, 'text', 'post'), said(m.settled, 'shown', 'spent')
            ]) FROM message m WHERE m.thread = one.id
        ) s (said), regexp_split_to_table(lower(s.said COLLATE "C"), '[\x01-/:-`{-\x7f]+') w (word)
        ON CONFLICT (thread) DO UPDATE SET at = excluded.at, words = excluded.words;
    END LOOP;
END
$$;
