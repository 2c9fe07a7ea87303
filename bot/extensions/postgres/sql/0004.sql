-- Which words stand in a thread, for a search: where one is in none of them, no message need be read. It is from when the
-- thread's history last grew (`at`), or it says nothing. Not compressed: a search reads many.
CREATE TABLE vocabulary (thread text PRIMARY KEY, at timestamptz NOT NULL, words text NOT NULL);
ALTER TABLE vocabulary ALTER COLUMN words SET STORAGE EXTERNAL;
