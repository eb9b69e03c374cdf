"""The backend SQLite."""
