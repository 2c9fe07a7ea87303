-- Files of threads. Content lies under its SHA-256, in parts of 1 MiB; it is whole once part 0 is there.

CREATE TABLE blob (
    sha bytea,
    part int,
    data bytea NOT NULL,
    used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (sha, part)
);
ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE file (
    thread text,
    path bytea,
    sha bytea NOT NULL,
    size bigint NOT NULL,
    mode int NOT NULL,
    PRIMARY KEY (thread, path)
);
CREATE INDEX file_sha ON file (sha);

-- Replaces the list of a thread's files for its owner. Returns the contents that are not there any more, and null for
-- one who does not own the thread at that epoch; nothing is changed then.
CREATE FUNCTION replace_files(me int, of_thread text, at_epoch bigint, paths bytea[], shas bytea[], sizes bigint[], modes int[])
RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE
    gone bytea[];
BEGIN
    PERFORM FROM thread t WHERE t.id = of_thread AND t.owner = me AND t.epoch = at_epoch FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NEXT NULL;
        RETURN;
    END IF;
    UPDATE blob b SET used_at = clock_timestamp() WHERE b.part = 0 AND b.sha = ANY (shas);
    SELECT array_agg(DISTINCT s) INTO gone FROM unnest(shas) s
    WHERE NOT EXISTS (SELECT FROM blob b WHERE b.sha = s AND b.part = 0);
    IF gone IS NULL THEN
        DELETE FROM file f WHERE f.thread = of_thread;
        INSERT INTO file (thread, path, sha, size, mode)
        SELECT of_thread, g.path, g.sha, g.size, g.mode FROM unnest(paths, shas, sizes, modes) g (path, sha, size, mode);
    END IF;
    RETURN QUERY SELECT unnest(gone);
END
$$;

-- Deletes some content that no thread has named for an hour.
CREATE FUNCTION collect_blobs() RETURNS void LANGUAGE sql AS $$
    DELETE FROM blob b WHERE b.sha IN (
        SELECT o.sha FROM blob o WHERE o.part = 0 AND o.used_at < clock_timestamp() - interval '1 hour'
          AND NOT EXISTS (SELECT FROM file f WHERE f.sha = o.sha) LIMIT 100 FOR UPDATE SKIP LOCKED
    )
$$;
