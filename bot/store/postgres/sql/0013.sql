-- A call that its worker's death cut short costs its prompt, and its output by the time that passed until it was found.
ALTER TABLE reservation ADD COLUMN at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ADD COLUMN at_once bigint, ADD COLUMN per_s bigint NOT NULL DEFAULT 0;

CREATE FUNCTION reserve(
    me int, which bigint, scopes text[], keys text[], caps bigint[], today text, most bigint, entry text,
    prompt_cost bigint, second_cost bigint
) RETURNS TABLE (fits boolean, of account) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM reserve(me, which, scopes, keys, caps, today, most, entry);
    UPDATE reservation r SET at_once = prompt_cost, per_s = second_cost WHERE r.seq = which;
END
$$;

-- Counts what calls of dead workers can have cost, and returns their lines with it. A worker that is cut off from the
-- database is taken for dead while it lives: within a lease of 3 s it ends its calls, and they end a second later.
DROP FUNCTION lapse();
CREATE FUNCTION lapse() RETURNS TABLE (entry text, cost bigint) LANGUAGE plpgsql AS $$
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
