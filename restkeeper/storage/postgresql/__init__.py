"""The backend PostgreSQL. Only `location` is imported without the extra `postgresql`."""
