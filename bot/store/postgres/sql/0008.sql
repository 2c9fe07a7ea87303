-- The rate of a person over all workers, threads that are left to other workers, and an audit without repeats.

ALTER TABLE message ADD COLUMN over_rate boolean NOT NULL DEFAULT false;
-- Whether nobody owned the thread when the message was stored: nobody has begun to serve it.
ALTER TABLE message ADD COLUMN unowned boolean NOT NULL DEFAULT false;
ALTER TABLE bucket ADD COLUMN used float8 NOT NULL DEFAULT 0;

-- Uses up to so many tokens of a bucket that holds `size` and fills within a minute, and returns how many there were.
-- What is refused leaves no debt.
CREATE FUNCTION use_tokens(of_name text, size float8, wanted float8) RETURNS float8 LANGUAGE sql AS $$
    INSERT INTO bucket AS b (name, level, at, used)
    VALUES (of_name, size - LEAST(wanted, size), clock_timestamp(), LEAST(wanted, size))
    ON CONFLICT (name) DO UPDATE SET (level, at, used) = (
        SELECT f.level - LEAST(wanted, floor(f.level)), clock_timestamp(), LEAST(wanted, floor(f.level))
        FROM (SELECT LEAST(size, b.level + GREATEST(0, extract(epoch FROM clock_timestamp() - b.at)) * size / 60) AS level) f
    )
    RETURNING b.used
$$;

-- Receives as above, and marks the new messages that nobody owns, and those that go beyond what their senders may have
-- answered in a minute; null is no limit.
CREATE FUNCTION receive(
    me int, keys text[], threads text[], aliases text[], bodies text[], senders text[], limits int[]
) RETURNS TABLE (key text, new boolean, thread text, owner int, epoch bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fresh text[] := '{}';
    free text[] := '{}';
    sender text;
    most int;
    said text[];
    granted int;
BEGIN
    FOR key, new, thread, owner, epoch IN SELECT r.* FROM receive(me, keys, threads, aliases, bodies) r LOOP
        IF new THEN
            fresh := fresh || key;
        END IF;
        IF new AND owner IS NULL THEN
            free := free || key;
        END IF;
        RETURN NEXT;
    END LOOP;
    IF free <> '{}' THEN
        UPDATE message m SET unowned = true WHERE m.key = ANY (free);
    END IF;
    FOR sender, most, said IN
        SELECT g.sender, min(g.most), array_agg(g.key ORDER BY g.n)
        FROM unnest(keys, senders, limits) WITH ORDINALITY g (key, sender, most, n)
        WHERE g.most IS NOT NULL AND g.key = ANY (fresh) GROUP BY g.sender ORDER BY g.sender
    LOOP
        granted := use_tokens('sender:' || sender, most, cardinality(said));
        IF granted < cardinality(said) THEN
            UPDATE message m SET over_rate = true WHERE m.key = ANY (said[granted + 1:]);
        END IF;
    END LOOP;
END
$$;

-- What has been full for long tells nothing any more.
CREATE FUNCTION collect_buckets() RETURNS void LANGUAGE sql AS $$
    DELETE FROM bucket b WHERE b.at < clock_timestamp() - interval '1 hour' AND starts_with(b.name, 'sender:')
$$;

-- A batch whose answer was lost is sent again.
ALTER TABLE audit ADD COLUMN digest bytea;
CREATE UNIQUE INDEX audit_digest ON audit (digest);
