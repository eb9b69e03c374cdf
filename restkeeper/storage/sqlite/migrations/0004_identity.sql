-- oldest: 4
-- The file's schema version (PRAGMA schema_version) when the epoch was created, or when this program last changed the
-- schema. If it is another one now, the file was replaced by a copy (`identity.py`).
ALTER TABLE store ADD COLUMN schema_cookie INTEGER NOT NULL DEFAULT 0;
