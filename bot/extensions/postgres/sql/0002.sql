-- Which form of the functions the database has: see functions.sql.
ALTER TABLE meta ADD COLUMN functions int NOT NULL DEFAULT 0;
