-- Receives as before. Two copies of a message with different ids may begin a thread each, and come to two workers at
-- the same moment: the second waits for the first one's alias, and then finds it.
CREATE OR REPLACE FUNCTION receive(me int, keys text[], threads text[], aliases text[], bodies text[])
RETURNS TABLE (key text, new boolean, thread text, owner int, epoch bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO thread AS t (id, owner, epoch)
    SELECT DISTINCT g.thread, me, (me IS NOT NULL)::int FROM unnest(threads) g (thread) ORDER BY g.thread
    ON CONFLICT (id) DO UPDATE SET owner = COALESCE(t.owner, excluded.owner),
        epoch = t.epoch + (t.owner IS NULL AND excluded.owner IS NOT NULL)::int;
    INSERT INTO alias (key, message)
    SELECT g.alias, g.key FROM unnest(keys, aliases) WITH ORDINALITY g (key, alias, n)
    WHERE g.alias IS NOT NULL
      AND NOT EXISTS (SELECT FROM alias a WHERE a.key = g.key)
      AND NOT EXISTS (SELECT FROM message o WHERE o.key IN (g.key, g.alias))
    ORDER BY g.alias, g.n ON CONFLICT DO NOTHING;
    RETURN QUERY WITH given AS (
        SELECT g.* FROM unnest(keys, threads, aliases, bodies) WITH ORDINALITY g (key, thread, alias, body, n)
    ), m AS (
        INSERT INTO message (key, thread, received)
        SELECT g.key, g.thread, g.body::json FROM given g
        WHERE NOT EXISTS (SELECT FROM alias a WHERE a.key = g.key OR (a.key = g.alias AND a.message <> g.key))
          AND NOT EXISTS (SELECT FROM message o WHERE o.key = g.alias)
        ORDER BY g.n ON CONFLICT (key) DO NOTHING RETURNING message.key
    )
    SELECT g.key, g.key IN (SELECT m.key FROM m), g.thread, t.owner, t.epoch
    FROM given g JOIN thread t ON t.id = g.thread ORDER BY g.n;
END
$$;
