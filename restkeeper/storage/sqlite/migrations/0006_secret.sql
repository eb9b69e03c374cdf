-- oldest: 6
-- A secret that readers of the store know, for the names of what its processes share. It is created when the store is
-- opened, and no backup has it.
ALTER TABLE store ADD COLUMN secret TEXT NOT NULL DEFAULT '';
