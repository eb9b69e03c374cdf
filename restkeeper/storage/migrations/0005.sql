-- oldest: 3
-- The former owner of an item, in the event that has given it to `owner`, and an empty text if it had none: to who reaches
-- the items of one of both alone, the item is created, or deleted.
ALTER TABLE events ADD COLUMN former {text};
