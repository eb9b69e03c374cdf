"""gunicorn: its settings and hooks, the worker, and the start for development."""
