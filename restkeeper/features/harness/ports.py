"""The ports of spaces: every space has another port, so that no request for another space can reach it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from errno import EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EMFILE
from itertools import cycle, islice, repeat
from socket import AF_INET, AF_INET6, create_server, socket

from restkeeper.config import Config
from restkeeper.errors import Conflict
from restkeeper.net import most_files

SPARE_FILES = 64  # descriptors that remain for connections, also to the control
MOST_TRIES = 1000  # ports that are in use, or that another space had


class Ports:
    """Gives a free port once, and the ports of a range in turn: a port comes again as late as possible."""

    def __init__(self, config: Config) -> None:
        lowest, _, highest = config.harness_ports.partition("-")
        numbers = range(int(lowest), int(highest) + 1) if lowest else range(0)
        self._next: Iterator[int] = cycle(numbers) if numbers else repeat(0)
        self._most = len(numbers) or MOST_TRIES
        address = config.host if config.host.startswith("127.") else "127.0.0.1"  # one of many that are this machine
        self._hosts = [config.host] if config.harness == "remote" else [address, "::1"]
        self._given = set[int]()

    def listen(self) -> list[socket]:
        """Listening sockets at a port, one for each address. Raises Conflict."""
        most = most_files()
        reason = "all were given"
        for number in islice(self._next, self._most):
            try:
                listeners = _listening(self._hosts, number)
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                if error.errno == EADDRINUSE:
                    continue
                break
            port = listeners[0].getsockname()[1]
            is_last = most - SPARE_FILES <= listeners[-1].fileno()  # a descriptor is the lowest one that is free
            if not is_last and (number or port not in self._given):
                self._given.add(port)
                return listeners
            for listener in listeners:
                listener.close()
            if is_last:
                reason = os.strerror(EMFILE)
                break
        raise Conflict(
            f"there is no port for another space ({reason}): drop the spaces that are not needed any more, or start a "
            "server with more ports (--ports) or open files (ulimit -n)"
        )


def _listening(hosts: list[str], port: int) -> list[socket]:
    """Listening sockets at a port of these addresses, 0 for any; without IPv6 if this machine has none."""
    listeners: list[socket] = []
    with ExitStack() as failing:
        for host in hosts:
            family = AF_INET6 if ":" in host else AF_INET
            try:
                listener = create_server((host, port), family=family, dualstack_ipv6=host == "::")
                listeners.append(failing.enter_context(listener))
            except OSError as error:
                if not listeners or error.errno not in (EADDRNOTAVAIL, EAFNOSUPPORT):
                    raise
            port = listeners[0].getsockname()[1]
        failing.pop_all()
    return listeners
