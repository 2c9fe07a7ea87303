-- Money: what calls may cost and did cost, for all workers. Amounts are micro-dollars. Whoever changes accounts locks
-- them first, in their order, and only then looks at what is there: the same statement sent twice counts once.

CREATE SEQUENCE spending_seq AS bigint INCREMENT 100;

-- The lines of the ledger, as in the files of one machine.
CREATE TABLE spending (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    line json NOT NULL
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
    day text NOT NULL
);

CREATE FUNCTION lock_accounts(scopes text[], keys text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO account (scope, key)
    SELECT DISTINCT g.scope, g.key FROM unnest(scopes, keys) g (scope, key) ORDER BY g.scope, g.key
    ON CONFLICT DO NOTHING;
    PERFORM FROM account a JOIN (SELECT DISTINCT * FROM unnest(scopes, keys)) g (scope, key) USING (scope, key)
    ORDER BY a.scope, a.key FOR NO KEY UPDATE OF a;
END
$$;

-- Sets aside the most that a call can cost if it fits under all caps (null is none), and returns the accounts with
-- whether it did. A worker that was taken for dead reserves nothing, and gets no rows.
CREATE FUNCTION reserve(me int, which bigint, scopes text[], keys text[], caps bigint[], today text, most bigint, entry text)
RETURNS TABLE (fits boolean, of account) LANGUAGE plpgsql AS $$
DECLARE
    fitting boolean;
BEGIN
    PERFORM FROM worker w WHERE w.id = me FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM lock_accounts(scopes, keys);
    IF EXISTS (SELECT FROM spending s WHERE s.seq = which) THEN
        fitting := true;
    ELSE
        SELECT bool_and(g.cap IS NULL OR a.spent + a.reserved + most <= g.cap + a.granted) INTO fitting
        FROM unnest(scopes, keys, caps) g (scope, key, cap) JOIN account a USING (scope, key);
        IF fitting THEN
            UPDATE account a SET reserved = a.reserved + most
            FROM unnest(scopes, keys) g (scope, key) WHERE a.scope = g.scope AND a.key = g.key;
            INSERT INTO reservation VALUES (which, me, scopes, keys, most, today);
            INSERT INTO spending (seq, line) VALUES (which, entry::json);
        END IF;
    END IF;
    RETURN QUERY SELECT fitting, a FROM unnest(scopes, keys) g (scope, key) JOIN account a USING (scope, key);
END
$$;

-- Counts what calls did cost, in place of their reservations. One that lapsed counts in full already. Each of the
-- accounts comes with the number of its call, from 1, and the accounts are returned.
CREATE FUNCTION commit_calls(
    seqs bigint[], entries text[], reserves bigint[], costs bigint[], prompts bigint[], cached_prompts bigint[],
    outputs bigint[], days text[], calls int[], scopes text[], keys text[]
) RETURNS SETOF account LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_accounts(scopes, keys);
    WITH given AS (
        SELECT * FROM unnest(seqs, entries, reserves, costs, prompts, cached_prompts, outputs, days)
            WITH ORDINALITY g (seq, entry, reserve, cost, prompt, cached, output, day, n)
    ), fresh AS (
        INSERT INTO spending (seq, line) SELECT g.seq, g.entry::json FROM given g ON CONFLICT DO NOTHING RETURNING seq
    ), held AS (
        DELETE FROM reservation r USING given g WHERE r.seq = g.reserve RETURNING r.seq, r.micros
    ), amounts AS (
        SELECT k.scope, k.key, max(g.day) AS day, COALESCE(sum(h.micros), 0) AS freed,
            sum(CASE WHEN g.reserve = 0 OR h.seq IS NOT NULL THEN g.cost ELSE 0 END) AS cost,
            sum(g.prompt) AS prompt, sum(g.cached) AS cached, sum(g.output) AS output
        FROM given g JOIN fresh f ON f.seq = g.seq LEFT JOIN held h ON h.seq = g.reserve
        JOIN unnest(calls, scopes, keys) k (n, scope, key) ON k.n = g.n GROUP BY k.scope, k.key
    )
    UPDATE account a SET reserved = a.reserved - m.freed, spent = a.spent + m.cost, prompt = a.prompt + m.prompt,
        cached = a.cached + m.cached, output = a.output + m.output, day = m.day
    FROM amounts m WHERE a.scope = m.scope AND a.key = m.key;
    RETURN QUERY SELECT a.* FROM account a JOIN (SELECT DISTINCT * FROM unnest(scopes, keys)) g (scope, key) USING (scope, key);
END
$$;

CREATE FUNCTION grant_more(which bigint, of_scope text, of_key text, micros bigint, entry text)
RETURNS SETOF account LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_accounts(ARRAY[of_scope], ARRAY[of_key]);
    IF NOT EXISTS (SELECT FROM spending s WHERE s.seq = which) THEN
        INSERT INTO spending (seq, line) VALUES (which, entry::json);
        UPDATE account a SET granted = a.granted + micros, said = '' WHERE a.scope = of_scope AND a.key = of_key;
    END IF;
    RETURN QUERY SELECT a.* FROM account a WHERE a.scope = of_scope AND a.key = of_key;
END
$$;

-- Takes a warning as said, and returns the account with whether nobody had said it before.
CREATE FUNCTION warn(which bigint, of_scope text, of_key text, level text, entry text)
RETURNS TABLE (new boolean, of account) LANGUAGE plpgsql AS $$
DECLARE
    levels CONSTANT text[] := ARRAY['', 'warning', 'passed'];
    is_new boolean;
BEGIN
    PERFORM lock_accounts(ARRAY[of_scope], ARRAY[of_key]);
    is_new := EXISTS (SELECT FROM spending s WHERE s.seq = which);
    IF NOT is_new THEN
        UPDATE account a SET said = level WHERE a.scope = of_scope AND a.key = of_key
            AND array_position(levels, level) > array_position(levels, a.said);
        is_new := FOUND;
        IF is_new THEN
            INSERT INTO spending (seq, line) VALUES (which, entry::json);
        END IF;
    END IF;
    RETURN QUERY SELECT is_new, a FROM account a WHERE a.scope = of_scope AND a.key = of_key;
END
$$;

-- Counts in full what dead workers had set aside: whether their calls were answered cannot be known.
CREATE FUNCTION lapse() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    dead bigint[];
BEGIN
    SELECT array_agg(r.seq) INTO dead FROM reservation r
    WHERE NOT EXISTS (SELECT FROM worker w WHERE w.id = r.worker);
    IF dead IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM account a WHERE EXISTS (
        SELECT FROM reservation r, unnest(r.scopes, r.keys) k (scope, key)
        WHERE r.seq = ANY (dead) AND a.scope = k.scope AND a.key = k.key
    ) ORDER BY a.scope, a.key FOR NO KEY UPDATE;
    WITH gone AS (
        DELETE FROM reservation r WHERE r.seq = ANY (dead) RETURNING r.*
    ), amounts AS (
        SELECT k.scope, k.key, sum(g.micros) AS micros, max(g.day) AS day
        FROM gone g, unnest(g.scopes, g.keys) k (scope, key) GROUP BY k.scope, k.key
    )
    UPDATE account a SET reserved = a.reserved - m.micros, spent = a.spent + m.micros, day = m.day
    FROM amounts m WHERE a.scope = m.scope AND a.key = m.key;
END
$$;
