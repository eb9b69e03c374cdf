"""The settings of gunicorn in deployment: the engine's. What is set here takes the place of theirs."""

from restkeeper.server.settings import *  # noqa: F403
