"""Ports for servers that tests start."""

import random
import socket
from contextlib import suppress


def free_ports(number: int) -> list[int]:
    """Ports that only servers of this test process can have, until it ends, outside of those that clients get.

    Each is bound, so that no other process finds it free. With SO_REUSEADDR, which servers set, it can be bound again.
    """
    ports: list[int] = []
    while len(ports) < number:
        with suppress(OSError), socket.socket() as reserved:
            reserved.bind(("", random.randrange(10_000, 32_000)))  # noqa: S311
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ports.append(reserved.getsockname()[1])
            reserved.detach()  # it stays open
    return ports


def is_free(port: int) -> bool:
    """Whether a server can listen at a port: all processes that did have ended."""
    with suppress(OSError):
        socket.create_server(("127.0.0.1", port)).close()
        return True
    return False
