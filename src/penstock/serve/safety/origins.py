"""Which names the server answers to, and which pages may talk to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Origins:
    """``hosts``: what the header Host may say; ``origins``: what Origin may."""

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, host: str, port: int, *, tls: bool, names: Iterable[str] = ()) -> Origins:
        """For a server that listens there. ``names`` are others that it is known by: ``host``, or
        ``host:port`` where the port is another one (a proxy's).
        """
        bare = [f"[{host}]" if ":" in host else host]
        if is_loopback(host):
            bare += _LOOPBACK_NAMES
        hosts = {f"{name}:{port}" for name in bare}
        default = 443 if tls else 80
        if port == default:
            hosts |= set(bare)
        for name in names:
            hosts |= {name} if urlsplit(f"//{name}").port else {name, f"{name}:{port}"}
        hosts = {text.lower() for text in hosts}
        schemes = ("https",) if tls else ("http",)
        return cls(frozenset(hosts), frozenset(f"{s}://{h}" for s in schemes for h in hosts))

    def behind_proxy(self) -> Origins:
        """A proxy that ends TLS: pages come by https."""
        return Origins(
            self.hosts, self.origins | {o.replace("http://", "https://", 1) for o in self.origins}
        )

    def is_host(self, text: str) -> bool:
        return text.lower() in self.hosts

    def is_origin(self, text: str) -> bool:
        return text.lower() in self.origins
