"""Addresses: which are this machine's own, and which may be called on behalf of somebody else.

The latter are those of the public internet, and no others.

The facts are those of `ipaddress`, which are IANA's special-purpose registries (RFC 6890). Where its patch levels
differ, what is said here decides, and always for less.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_REFUSED = (
    IPv4Network("168.63.129.16/32"),  # Azure's metadata and DNS for its virtual machines
    IPv4Network("192.0.0.0/24"),  # for protocols (RFC 6890); Oracle's metadata; older Pythons know only parts of it
    IPv4Network("192.88.99.0/24"),  # relays of 6to4, given up (RFC 7526)
)
_UNICAST = IPv6Network("2000::/3")  # all that IANA has opened for it: not fc00::/7, fe80::/10, fec0::/10, ff00::/8 …
_REFUSED_6 = (
    IPv6Network("2001::/23"),  # for protocols (RFC 2928): Teredo, benchmarks, ORCHID; Pythons differ on parts of it
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("3fff::/20"),  # documentation (RFC 9637), which older Pythons do not know
)
_EMBEDDING = (  # networks whose addresses stand for IPv4 ones, and how many bits come after those
    (IPv6Network("::/96"), 0),  # compatible (RFC 4291, section 2.5.5.1); among them :: and ::1, as 0.0.0.0 and 0.0.0.1
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped (section 2.5.5.2)
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64 (RFC 6052); not 64:ff9b:1::/48, which is private (RFC 8215)
    (IPv6Network("2002::/16"), 80),  # 6to4 (RFC 3056)
)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine wherever it is looked up: an address, bare or in brackets, or a name.

    Names are in lower case (RFC 6761, section 6.3).
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether a host is an IP address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether an IP address, as `getaddrinfo` tells it, is a unicast one that is reachable from everywhere.

    An IPv6 address that stands for an IPv4 one is as public as that. What is no address is not public.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv4Address):
        return _is_public_4(ip)
    for network, after in _EMBEDDING:
        if ip in network:
            return _is_public_4(IPv4Address(int(ip) >> after & 0xFFFFFFFF))
    return _is_public_6(ip)


def _is_public_4(ip: IPv4Address) -> bool:
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _REFUSED)


def _is_public_6(ip: IPv6Address) -> bool:
    return ip in _UNICAST and ip.is_global and not any(ip in network for network in _REFUSED_6)
