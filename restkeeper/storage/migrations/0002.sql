-- oldest: 1
-- The number by which our files are told from those of other programs: see `require_ours`.
PRAGMA application_id = {application_id};  -- SQLite only
