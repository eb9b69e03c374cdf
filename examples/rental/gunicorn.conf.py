"""The settings of gunicorn: those of the engine. Settings in this file override them."""

from restkeeper.server.settings import *  # noqa: F403
