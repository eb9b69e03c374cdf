"""Ports for servers that tests start."""

import random
import socket
from contextlib import ExitStack, suppress


def free_ports(number: int) -> list[int]:
    """Different ports that no process has, outside of those that the system gives to clients: also after a restart."""
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < number:
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("", random.randrange(10_000, 32_000)))  # noqa: S311
                ports.append(probe.getsockname()[1])
    return ports


def is_free(port: int) -> bool:
    """Whether a server can have a port: all processes that had it have ended."""
    with suppress(OSError):
        socket.create_server(("127.0.0.1", port)).close()
        return True
    return False
