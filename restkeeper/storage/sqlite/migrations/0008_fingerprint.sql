-- oldest: 8
-- The fingerprint of an item's schema has its own name. A program that does not know migration 7, and had the store open
-- when it was migrated, would write items without the fields that it does not know: its statements now fail.
ALTER TABLE items RENAME COLUMN shape TO fingerprint;
ALTER TABLE events RENAME COLUMN shape TO fingerprint;
