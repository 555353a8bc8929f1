"""What happens to a lake's catalogue, which is a Postgres behind a proxy. ``amount``, from 0 to 1,
is how long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from penstock.embedded.postgres import EmbeddedPostgres
from tests.tcp_proxy import TcpProxy

_LONGEST_SECONDS = 5.0
_CUTS = 20


class HasCatalogue(Protocol):
    catalogue: EmbeddedPostgres
    catalogue_network: TcpProxy


def through(network: TcpProxy, url: str) -> str:
    """The same database by way of the proxy."""
    start, _, database = url.rpartition("/")
    return f"{start.rpartition(':')[0]}:{network.port}/{database}"


def _crash(injured: HasCatalogue, _amount: float) -> str:
    injured.catalogue.kill()
    injured.catalogue.start()
    return ""


def _cut(injured: HasCatalogue, amount: float) -> str:
    """Many times, so that answers to commits are among what is lost."""
    cut = 0
    for _ in range(_CUTS):
        time.sleep(0.02 + amount / 10)
        cut += injured.catalogue_network.cut()
    return f"{cut} connections"


def _silence(injured: HasCatalogue, amount: float) -> str:
    """Answers come late."""
    injured.catalogue_network.silence(amount * _LONGEST_SECONDS)
    return f"{amount * _LONGEST_SECONDS:.1f} s"


def _refuse(injured: HasCatalogue, amount: float) -> str:
    injured.catalogue_network.refuse()
    time.sleep(amount * _LONGEST_SECONDS)
    injured.catalogue_network.accept()
    return f"{amount * _LONGEST_SECONDS:.1f} s"


CATALOGUE_FAULTS: dict[str, Callable[[Any, float], str]] = {
    "catalogue crashed": _crash,
    "catalogue's connections cut": _cut,
    "catalogue silent": _silence,
    "catalogue refuses": _refuse,
}
