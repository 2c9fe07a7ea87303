-- Small values of all workers, what only one of them does, and the audit.

CREATE TABLE slot (name text PRIMARY KEY, rev bigint NOT NULL, body json NOT NULL) WITH (fillfactor = 50);

-- Replaces the value that the caller has seen as `seen`, and returns its new revision; nothing if it was another's turn.
CREATE FUNCTION replace_slot(of_name text, seen bigint, new_body text) RETURNS SETOF bigint LANGUAGE sql AS $$
    INSERT INTO slot AS s (name, rev, body) SELECT of_name, 1, new_body::json
    WHERE seen = 0 OR EXISTS (SELECT FROM slot t WHERE t.name = of_name)
    ON CONFLICT (name) DO UPDATE SET rev = s.rev + 1, body = excluded.body WHERE s.rev = seen
    RETURNING s.rev
$$;

-- What one worker does for all: read the history of a platform, hold its only session, send scheduled messages.
CREATE TABLE role (name text PRIMARY KEY, worker int NOT NULL);

-- Returns whether the role is the worker's. A dead worker's is anybody's.
CREATE FUNCTION take_role(me int, of_name text) RETURNS boolean LANGUAGE plpgsql AS $$
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

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    line json NOT NULL
);
