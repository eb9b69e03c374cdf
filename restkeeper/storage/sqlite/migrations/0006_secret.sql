-- What only those know who can read the store: names by which processes that share it meet are made from it. It is made
-- when the store is opened, and no backup has it.
ALTER TABLE store ADD COLUMN secret TEXT NOT NULL DEFAULT '';
