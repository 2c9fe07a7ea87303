-- Which server and tables a store was last used on. They are others after a dump was restored, or after a replica or an
-- earlier state of the server took over: then the platforms may know of more than the store does.
ALTER TABLE meta ADD COLUMN identity text;
ALTER TABLE meta ADD COLUMN restored_at timestamptz;
