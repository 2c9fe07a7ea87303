-- How far each worker has read the channels of a transport. The rows of one that is gone are taken over by another.
CREATE TABLE mark (
    transport text,
    worker int,
    body bytea NOT NULL,
    PRIMARY KEY (transport, worker)
);
