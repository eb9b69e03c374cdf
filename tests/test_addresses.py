"""Only public unicast addresses may be called for a client."""

from restkeeper.features.webhooks.addresses import is_public

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.0.1.1"]
PUBLIC_6 = ["2606:4700:4700::1111", "2a00:1450:4001:80e::200e", "2400:cb00::1", "2606:4700::1%eth0"]
PRIVATE = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
    169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.8 192.0.0.9 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1
    198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
""".split()
AZURE = "168.63.129.16"  # the metadata service: in the local network, though its address looks public
PRIVATE_6 = """
    :: ::1 ::1%lo 100::1 2001::1 2001:0:808:808:: 2001:1::1 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 3fff::1 4000::1
    5f00::1 64:ff9b:1::1 64:ff9b:1::8.8.8.8 ::ffff:0:8.8.8.8 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fe80::1%25
    febf::1 fec0::1 ff02::1 ff0e::1
""".split()
NO_ADDRESS = ["", " ", *"localhost 127.1 2130706433 0177.0.0.1 0x7f.1 8.8.8.8%eth0 8.8.8.8/32 fe80::%".split()]


def embedded(address: str) -> list[str]:
    """The IPv6 addresses that contain an IPv4 address."""
    first, second, third, fourth = map(int, address.split("."))
    low = f"{first:02x}{second:02x}:{third:02x}{fourth:02x}"
    return [f"::ffff:{low}", f"::ffff:{address}", f"::{low}", f"64:ff9b::{low}", f"2002:{low}::", f"2002:{low}::1"]


def test_addresses_of_the_internet_are_public() -> None:
    """Also an IPv6 address that is translated to a public one."""
    every = [*PUBLIC, *PUBLIC_6, *(each for address in PUBLIC for each in embedded(address))]
    assert [each for each in every if not is_public(each)] == []


def test_all_others_are_not_public() -> None:
    """Reserved ones, whatever this Python knows; no IPv6 form of them; nor what `getaddrinfo` would not return."""
    inside = [each for address in (*PRIVATE, AZURE) for each in embedded(address)]
    assert [each for each in (*PRIVATE, AZURE, *PRIVATE_6, *inside, *NO_ADDRESS) if is_public(each)] == []
