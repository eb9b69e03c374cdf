"""SQLite: the statements, migrations and waits of one backend."""
