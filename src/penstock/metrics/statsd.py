"""Metrics to a statsd server: plain statsd lines, with tags as DogStatsD has them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator

from penstock.config.metrics_config import ListenAddress
from penstock.metrics.registry import Registry, Sample

# Fits into one Ethernet frame: larger datagrams may get lost on their way.
_MOST_BYTES = 1400
_TAG_UNSAFE = re.compile(r"[,|#:@\s]")


class Statsd:
    """Sends counters as what came since the last time, gauges as they are, and of histograms sum
    and count. What cannot be sent is left: the pipeline neither waits for it nor fails.
    """

    def __init__(self, registry: Registry, address: ListenAddress, prefix: str) -> None:
        self._registry = registry
        self._address = address
        self._prefix = prefix
        self._sent: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    def send(self) -> None:
        try:
            found = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
            family, kind, protocol, _, to = found[0]
            with socket.socket(family, kind, protocol) as udp:
                udp.setblocking(False)
                for datagram in datagrams(self.lines()):
                    udp.sendto(datagram, to)
        except OSError:
            # Nobody listens, or nobody of that name is known: statsd is told again next time.
            pass

    def lines(self) -> Iterator[str]:
        """One for each value that there is to tell."""
        for sample in self._registry.samples():
            if sample.kind == "gauge":
                yield self._line(sample, sample.value, "g")
                continue
            key = (sample.name, frozenset(sample.labels.items()))
            delta = sample.value - self._sent.get(key, 0.0)
            self._sent[key] = sample.value
            if delta > 0:
                yield self._line(sample, delta, "c")

    def _line(self, sample: Sample, value: float, kind: str) -> str:
        name = sample.name.removeprefix("penstock_").removesuffix("_total")
        tags = ",".join(f"{key}:{_TAG_UNSAFE.sub('_', v)}" for key, v in sample.labels.items() if v)
        number = f"{value:.0f}" if value == int(value) else repr(value)
        return f"{self._prefix}.{name}:{number}|{kind}|#{tags}"


def datagrams(lines: Iterable[str]) -> Iterator[bytes]:
    """As many lines together as a datagram should hold."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        data = line.encode()
        if held and size + len(data) > _MOST_BYTES:
            yield b"\n".join(held)
            held, size = [], 0
        held.append(data)
        size += len(data) + 1
    if held:
        yield b"\n".join(held)
