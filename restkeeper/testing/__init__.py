"""A service for tests: in a process of its own, in a thread of the test, or without a server."""

from restkeeper.testing.server import LiveServer as LiveServer
from restkeeper.testing.space import Space as Space
