-- oldest: 3
-- The former owner of an item, in the event that has given it to `owner`, and an empty text if it had none. For a reader
-- with only the new owner the event is created, with only the former one deleted.
ALTER TABLE events ADD COLUMN former {text};
