-- oldest: 3
-- Ends a statement, and what was sent with it, if a change has found no row: see `Session.queue`.
CREATE FUNCTION require_row(rows bigint) RETURNS void LANGUAGE plpgsql AS $$ -- PostgreSQL only
BEGIN -- PostgreSQL only
    IF rows = 0 THEN RAISE EXCEPTION 'no row was found' USING ERRCODE = 'RK001'; END IF; -- PostgreSQL only
END $$; -- PostgreSQL only
