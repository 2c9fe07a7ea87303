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

-- Returns true if the worker is to report something: it did so before, or no other one did within so many seconds.
CREATE FUNCTION claim_report(of_name text, me int, within_s float8) RETURNS SETOF boolean LANGUAGE sql AS $$
    INSERT INTO bucket AS b (name, level, at) VALUES ('report:' || of_name, me, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET level = me, at = clock_timestamp()
    WHERE b.level = me OR b.at < clock_timestamp() - within_s * interval '1s'
    RETURNING true
$$;

CREATE OR REPLACE FUNCTION collect_buckets() RETURNS void LANGUAGE sql AS $$
    DELETE FROM bucket b WHERE b.at < clock_timestamp() - interval '1 hour'
      AND (starts_with(b.name, 'sender:') OR starts_with(b.name, 'report:'))
$$;
