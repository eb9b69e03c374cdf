"""A service for tests: in a process of its own, or without a server."""

from restkeeper.testing.server import LiveServer as LiveServer
from restkeeper.testing.space import Space as Space
