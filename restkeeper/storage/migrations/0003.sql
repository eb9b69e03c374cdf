-- oldest: 3
-- The revision of a collection's items, which are all in one: a program of another revision finds none of them, and
-- stores nothing. It is the former one, negated, while they are converted and after a conversion that was interrupted,
-- and 0 if items of several are found here. `converted_at` is when it changed last (RFC 3339).
ALTER TABLE counters ADD COLUMN revision {integer} NOT NULL DEFAULT 0;
UPDATE counters SET revision = (
    SELECT coalesce(CASE WHEN min(revision) = max(revision) THEN min(revision) END, 0)
    FROM (
        SELECT coalesce(CAST(nullif(rtrim(rtrim(
            fingerprint, '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'), '-'), '') AS integer), 1) AS revision
        FROM items WHERE items.collection = counters.collection
    ) AS found
);
ALTER TABLE counters ADD COLUMN converted_at {text} NOT NULL DEFAULT '';
ALTER TABLE schemas DROP COLUMN oldest;
