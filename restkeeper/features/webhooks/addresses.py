"""The public addresses, which a service may call for a client.

The facts are those of `ipaddress`, that is of IANA's special-purpose registries (RFC 6890). Versions of Python differ;
the lists here exclude every address on which they do.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address

_REFUSED = (
    IPv4Network("168.63.129.16/32"),  # Azure's metadata and DNS for its virtual machines
    IPv4Network("192.0.0.0/24"),  # for protocols (RFC 6890); Oracle's metadata; older Pythons exclude only parts of it
    IPv4Network("192.88.99.0/24"),  # relays of 6to4, obsolete (RFC 7526)
)
_UNICAST = IPv6Network("2000::/3")  # all that IANA has allocated: not fc00::/7, fe80::/10, fec0::/10, ff00::/8 …
_REFUSED_6 = (
    IPv6Network("2001::/23"),  # for protocols (RFC 2928): Teredo, benchmarks, ORCHID; Pythons differ on parts of it
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("3fff::/20"),  # documentation (RFC 9637), which older Pythons do not know
)
_EMBEDDING = (  # networks whose addresses contain an IPv4 address, and the number of bits after it
    (IPv6Network("::/96"), 0),  # compatible (RFC 4291, section 2.5.5.1); among them :: and ::1, as 0.0.0.0 and 0.0.0.1
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped (section 2.5.5.2)
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64 (RFC 6052); not 64:ff9b:1::/48, which is private (RFC 8215)
    (IPv6Network("2002::/16"), 80),  # 6to4 (RFC 3056)
)


def is_address(host: str) -> bool:
    """Whether a host is an IP address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether a text is a public unicast IP address, in the form of `getaddrinfo`.

    An IPv6 address that contains an IPv4 address is public if that one is.
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
    return ip in _UNICAST and ip.is_global and not any(ip in network for network in _REFUSED_6)


def _is_public_4(ip: IPv4Address) -> bool:
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _REFUSED)
