-- oldest: 8
-- Why the store does not serve as usual: it was moved to another one, or is an incomplete copy of one (`transfer.py`).
ALTER TABLE store ADD COLUMN mark TEXT NOT NULL DEFAULT '';
