-- oldest: 3
-- The revision of a collection's items, which are all in one: a program of another revision finds none of them, and
-- stores nothing. On PostgreSQL it is the former one, negated, while they are converted and after a conversion that was
-- interrupted. It is 0 if items of several are found here. `converted_at` is when it changed last (RFC 3339).
ALTER TABLE counters ADD COLUMN revision {integer} NOT NULL DEFAULT 1;
UPDATE counters SET revision = found.revision
FROM (
    SELECT collection, CASE WHEN min(revision) = max(revision) THEN min(revision) ELSE 0 END AS revision
    FROM (
        SELECT collection, coalesce(CAST(nullif(rtrim(rtrim(
            fingerprint, '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'), '-'), '') AS integer), 1) AS revision
        FROM items
    ) AS each_item
    GROUP BY collection
) AS found
WHERE found.collection = counters.collection;
ALTER TABLE counters ADD COLUMN converted_at {text} NOT NULL DEFAULT '';
ALTER TABLE schemas DROP COLUMN oldest;
