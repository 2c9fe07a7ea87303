-- Who finds dead workers learns their names, for the audit. An older worker passes over what this returns.
CREATE OR REPLACE FUNCTION reap(me int, lease_s float8) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 7777 AND l.objid = me
          AND a.datname = current_database() AND a.backend_start < clock_timestamp() - lease_s * interval '1s'
    ) THEN
        RETURN;
    END IF;
    RETURN QUERY DELETE FROM worker w WHERE w.id <> me AND (w.alive_until < clock_timestamp() OR NOT EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 7777 AND l.objid = w.id
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    )) RETURNING w.name;
    PERFORM FROM thread t WHERE t.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = t.owner)
    ORDER BY t.id FOR NO KEY UPDATE;
    UPDATE thread t SET owner = NULL
    WHERE t.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = t.owner);
END
$$;
