"""How a server is started: where it listens, whom it believes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.model.errors import ConfigError
from penstock.serve.safety.identity import Role
from penstock.serve.safety.origins import is_loopback

DEFAULT_PORT = 8720


@dataclass(frozen=True)
class ServeOptions:
    """``proxies``: addresses of proxies in front, which end TLS; ``proxy_header``: the header in
    which they name the user whom they let in.
    """

    places: tuple[Path, ...]
    state: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    proxies: frozenset[str] = field(default_factory=frozenset)
    proxy_header: str = ""
    proxy_role: Role = "read"
    starts: bool = True
    page: bool = True

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    def require_safe(self, *, has_tokens: bool) -> None:
        """Raises ConfigError where strangers could listen in, or come in."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError(
                "A certificate and its key belong together.",
                remedy="Give both --tls-cert and --tls-key, or neither.",
            )
        for file in (self.certificate, self.key):
            if file is not None and not file.is_file():
                raise ConfigError(f"There is no file {file}.", remedy="Check the path.")
        if self.proxy_header and not self.proxies:
            raise ConfigError(
                "A header that names the user is believed from a declared proxy alone.",
                remedy="Give the proxy's address with --proxy.",
            )
        if is_loopback(self.host) or self.proxies:
            return
        if not self.tls:
            raise ConfigError(
                f"On {self.host} others can reach the server, and nothing would be encrypted.",
                remedy="Give --tls-cert and --tls-key, or --proxy with the address of a proxy that "
                "ends TLS; or listen on 127.0.0.1.",
            )
        if not has_tokens:
            raise ConfigError(
                f"On {self.host} others can reach the server, and it has no tokens.",
                remedy="Make one: penstock tokens create NAME --role operate",
            )
