-- What workers have at the moment, which is little: so that a lease that cannot be is found at once.
CREATE INDEX deliveries_leased ON deliveries (webhook, due) WHERE leased = 1;
