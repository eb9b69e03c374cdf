-- The file's schema version (PRAGMA schema_version) when the epoch was made, or when this program last changed the
-- schema: where it is another now, the file was replaced by a copy (`sqlite_identity.py`).
ALTER TABLE store ADD COLUMN schema_cookie INTEGER NOT NULL DEFAULT 0;
