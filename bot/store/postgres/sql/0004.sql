-- Rates that all workers share. Who takes more than there is leaves a debt, and waits until it is paid: the next one
-- waits longer. What a crash of the server loses is full again.

CREATE UNLOGGED TABLE bucket (
    name text PRIMARY KEY,
    level float8 NOT NULL,
    at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Takes one token, and returns the seconds until it may be used.
CREATE FUNCTION take_token(of_name text, per_second float8, burst float8) RETURNS float8 LANGUAGE sql AS $$
    INSERT INTO bucket AS b (name, level, at) VALUES (of_name, burst - 1, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET at = clock_timestamp(), level =
        LEAST(burst, b.level + GREATEST(0, extract(epoch FROM clock_timestamp() - b.at)) * per_second) - 1
    RETURNING GREATEST(0, -b.level / per_second)
$$;
