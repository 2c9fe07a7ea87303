-- Years of data. The audit and the ledger are partitioned by month: what is old goes by the drop of a partition
-- (`drop_months`), and partitions are made ahead (`make_month`). The tables of before become those of the running month.
--
-- The audit's month is its `at`, which is within the day of its line. Each partition has its own unique digest: a batch
-- that is sent again comes to the same partition. The ledger's month is its number. Numbers of a month begin with it, as
-- in 202612 0000000000, so that one that is sent again is found in one partition, and still is unique over all.

-- When a thread's history last grew: a list of threads reads no message. First of all: whoever writes locks the thread
-- before the message, and must not wait here for what it holds itself.
ALTER TABLE thread ADD COLUMN told_at timestamptz;
UPDATE thread t SET told_at = m.at FROM (SELECT thread, max(settled_at) AS at FROM message GROUP BY thread) m
WHERE m.thread = t.id AND m.at IS NOT NULL;

CREATE SEQUENCE audit_id;
DO $$
DECLARE
    month CONSTANT timestamp := date_trunc('month', now() AT TIME ZONE 'UTC');
    suffix CONSTANT text := to_char(month, '_YYYY_MM');
    next CONSTANT timestamptz := (month + interval '1 month') AT TIME ZONE 'UTC';
BEGIN
    ALTER TABLE audit DROP CONSTRAINT audit_pkey, ALTER COLUMN id DROP IDENTITY;
    -- A clock may have been wrong.
    UPDATE audit SET at = next - interval '1 microsecond' WHERE at >= next;
    PERFORM setval('audit_id', COALESCE(max(id), 0) + 1, false) FROM audit;
    EXECUTE format('ALTER TABLE audit RENAME TO %I', 'audit' || suffix);
    CREATE TABLE audit (
        id bigint NOT NULL DEFAULT nextval('audit_id'),
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        line json NOT NULL,
        digest bytea
    ) PARTITION BY RANGE (at);
    EXECUTE format('ALTER TABLE audit ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', 'audit' || suffix, next);
    CREATE TABLE audit_default PARTITION OF audit (UNIQUE (digest)) DEFAULT;

    ALTER INDEX spending_pkey RENAME TO spending_first_pkey;
    EXECUTE format('ALTER TABLE spending RENAME TO %I', 'spending' || suffix);
    CREATE TABLE spending (
        seq bigint PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        line json NOT NULL,
        part text
    ) PARTITION BY RANGE (seq);
    EXECUTE format(
        'ALTER TABLE spending ATTACH PARTITION %I FOR VALUES FROM (-1000000000000000) TO (%s)',
        'spending' || suffix, to_char(month + interval '1 month', 'YYYYMM') || '0000000000'
    );
    -- What is left of months that went: one line by day and model.
    CREATE TABLE spending_sums PARTITION OF spending FOR VALUES FROM (MINVALUE) TO (-1000000000000000);
    CREATE TABLE spending_default PARTITION OF spending DEFAULT;
END
$$;
ALTER SEQUENCE audit_id OWNED BY audit.id;

-- What the reports look for. The text of a line is looked into, never its JSON: that fails at \u0000.

CREATE INDEX audit_line ON audit (id);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_thread ON audit (split_part(split_part(line::text, '"thread_id":"', 2), '"', 1));
CREATE INDEX audit_message ON audit ((split_part(split_part(line::text, '"message_id":"', 2), '"', 1) COLLATE "C"));
CREATE INDEX audit_reference ON audit (split_part(split_part(line::text, '"correlation_id":"', -1), '"', 1));
CREATE INDEX spending_at ON spending (at, seq);
CREATE INDEX spending_turn ON spending (split_part(split_part(line::text, '"turn":"', 2), '"', 1));

CREATE INDEX message_told ON message (thread, settled_at, seq) WHERE settled IS NOT NULL AND NOT logged;
CREATE INDEX message_id ON message (split_part(key, ':', -1));
CREATE INDEX message_reference ON message (split_part(split_part(started::text, '"correlation_id":"', 2), '"', 1))
    WHERE started IS NOT NULL;
CREATE INDEX message_post ON message (split_part(split_part(posted::text, '"platform_id":"', 2), '"', 1))
    WHERE posted IS NOT NULL;
CREATE INDEX log_names ON log USING gin ((ARRAY[
    split_part(split_part(line::text, '"message_id":"', 2), '"', 1),
    split_part(split_part(line::text, '"correlation_id":"', -1), '"', 1),
    split_part(split_part(line::text, '"platform_id":"', 2), '"', 1),
    split_part(split_part(line::text, '"outcome":"', 2), '"', 1)
]));
