"""Which addresses events may be sent to.

Names are not looked at: whatever a URL says, and whatever its name means a moment later, what
counts is the address that a socket is made for.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks whose addresses hold one of IPv4, and where it stands there.
_EMBEDDING = (
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),
    (ipaddress.IPv6Network("::/96"), 0),
)
# Local by their use, whatever the library's own tables say.
_REFUSED = (
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
    ipaddress.IPv6Network("2001::/32"),
    ipaddress.IPv6Network("fec0::/10"),
    ipaddress.IPv6Network("3fff::/20"),
    ipaddress.IPv6Network("5f00::/16"),
)


class AddressRefused(OSError):
    """No socket is made for this address."""

    def __init__(self, address: str) -> None:
        super().__init__(
            errno.EACCES,
            f"{address} is a private or local address, and destination.allow does not name it",
        )


class AddressGuard:
    """Refuses what is not a public address, unless one of ``allow`` holds it."""

    def __init__(self, allow: Sequence[str]) -> None:
        self._allow = [ipaddress.ip_network(text) for text in allow]

    def permits(self, address: str) -> bool:
        found = ipaddress.ip_address(address.partition("%")[0])
        forms = [found, *_embedded(found)]
        if any(form in network for form in forms for network in self._allow):
            return True
        return all(_is_public(form) for form in forms)

    def socket(self, found: tuple[Any, ...]) -> socket.socket:
        """Makes the socket of a connection: aiohttp asks for it with the address it will use."""
        family, kind, protocol, _, address = found
        if not self.permits(str(address[0])):
            raise AddressRefused(str(address[0]))
        return socket.socket(family, kind, protocol)


def _embedded(address: Ip) -> list[Ip]:
    if address.version == 4:
        return []
    number = int(address)
    return [
        ipaddress.IPv4Address((number >> shift) & 0xFFFFFFFF)
        for network, shift in _EMBEDDING
        if address in network
    ]


def _is_public(address: Ip) -> bool:
    if address.version == 6 and _embedded(address):
        # What it holds is looked at for itself.
        return True
    return (
        address.is_global
        and not address.is_multicast
        and not any(address in network for network in _REFUSED)
    )
