-- What the names of a worker's connections have in common, and when another worker first saw none of them; its next
-- beat makes that null again.
ALTER TABLE worker ADD COLUMN tag text, ADD COLUMN missing_at timestamptz;

-- Frees what dead workers own: those whose lease is past, or that have had neither a connection nor their lock for
-- `grace_s`. Returns those that are gone, and those that are missing so far. Only a worker judges whose own session is
-- as old as a lease: when the server starts again, all connections are gone at once.
CREATE FUNCTION reap(me int, lease_s float8, grace_s float8) RETURNS TABLE (name text, is_gone boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    missing int[];
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
    PERFORM FROM thread t WHERE t.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = t.owner)
    ORDER BY t.id FOR NO KEY UPDATE;
    UPDATE thread t SET owner = NULL
    WHERE t.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = t.owner);
    RETURN QUERY SELECT w.name, false FROM worker w WHERE w.id = ANY (missing);
END
$$;
