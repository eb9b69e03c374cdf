"""What a program knows of its machine: which addresses are its own, and how many files it may open."""

from contextlib import suppress
from importlib import import_module
from ipaddress import ip_address
from math import inf


def is_loopback(host: str) -> bool:
    """Whether a host is always this machine: an address, bare or in brackets, or a name in lower case.

    The names are those of RFC 6761, section 6.3.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def most_files() -> float:
    """How many files and connections this process may have open, after asking for as many as possible."""
    try:
        resource = import_module("resource")
    except ImportError:  # Windows, which has no such limit
        return inf
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # where more are allowed than there can be
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        soft = most
    return inf if soft == resource.RLIM_INFINITY else float(soft)
