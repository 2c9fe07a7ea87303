-- What came from the files of one machine, and what a command needs to read fast.

-- Lines of the threads' histories for people, as the files had them. A message that they tell of is `logged`.
CREATE TABLE log (thread text, n int, line json NOT NULL, PRIMARY KEY (thread, n));
ALTER TABLE message ADD COLUMN logged boolean NOT NULL DEFAULT false;

-- Where the store has gone, if it was moved; nobody starts on it then.
ALTER TABLE meta ADD COLUMN moved_to text;

-- The file of a line that came from files; these have numbers below 0, in their order.
ALTER TABLE spending ADD COLUMN part text;
