-- oldest: 5
-- The few deliveries that are leased now: impossible leases are found at once.
CREATE INDEX deliveries_leased ON deliveries (webhook, due) WHERE leased = 1;
