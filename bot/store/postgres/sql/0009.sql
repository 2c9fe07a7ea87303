-- Who reads a channel after a gap, and what was read last: one worker reads for all. Times are the platform's.
CREATE TABLE reading (
    transport text,
    channel text,
    worker int NOT NULL,
    since numeric NOT NULL,
    began numeric NOT NULL,
    upto text,
    PRIMARY KEY (transport, channel)
);

-- Returns '' if the worker is to read the channel: it is noted as its reader from `begins` on then. Returns null while
-- another one reads it. Otherwise one has read all since `since`, and began after `due`: returns up to where.
CREATE FUNCTION claim_reading(
    me int, of_transport text, of_channel text, since numeric, begins numeric, due numeric, now numeric
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    last reading;
BEGIN
    INSERT INTO reading VALUES (of_transport, of_channel, me, begins, now) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN '';
    END IF;
    SELECT * INTO last FROM reading r WHERE r.transport = of_transport AND r.channel = of_channel FOR UPDATE;
    IF last.upto IS NULL AND last.worker <> me AND EXISTS (SELECT FROM worker w WHERE w.id = last.worker) THEN
        RETURN NULL;
    ELSIF last.upto IS NOT NULL AND last.since <= since AND last.began > due THEN
        RETURN last.upto;
    END IF;
    UPDATE reading r SET worker = me, since = begins, began = now, upto = NULL
    WHERE r.transport = of_transport AND r.channel = of_channel;
    RETURN '';
END
$$;

-- How many messages without an outcome a worker has, null if it takes no more: one with many more than the others
-- leaves new threads to them.
ALTER TABLE worker ADD COLUMN pending int DEFAULT 0;
