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

-- Whether the list of the thread's files was ever stored: an empty one is not one from before the database.
ALTER TABLE thread ADD COLUMN files_stored boolean NOT NULL DEFAULT false;

-- Replaces the list of a thread's files for its owner. Returns the contents that are not there any more, and null for
-- one who does not own the thread at that epoch; nothing is changed then.
CREATE FUNCTION replace_files(me int, of_thread text, at_epoch bigint, paths bytea[], parts int[], shas bytea[], modes int[])
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
    SELECT array_agg(DISTINCT s) INTO gone FROM unnest(shas) s WHERE NOT EXISTS (SELECT FROM blob b WHERE b.sha = s);
    IF gone IS NULL THEN
        DELETE FROM file f WHERE f.thread = of_thread;
        INSERT INTO file (thread, path, part, sha, mode)
        SELECT of_thread, g.* FROM unnest(paths, parts, shas, modes) g;
        UPDATE thread t SET files_stored = true WHERE t.id = of_thread AND NOT t.files_stored;
    END IF;
    RETURN QUERY SELECT unnest(gone);
END
$$;

-- Deletes some content that no thread has named for an hour.
CREATE FUNCTION collect_blobs() RETURNS void LANGUAGE sql AS $$
    DELETE FROM blob b WHERE b.sha IN (
        SELECT o.sha FROM blob o WHERE o.used_at < clock_timestamp() - interval '1 hour'
          AND NOT EXISTS (SELECT FROM file f WHERE f.sha = o.sha) LIMIT 1000 FOR UPDATE SKIP LOCKED
    )
$$;
