"""gunicorn: its settings and hooks, the worker, and the start for development."""

NO_PRELOAD = "preload_app (--preload) is not supported: each worker creates the application"
