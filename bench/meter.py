"""What a system uses between two moments: CPU of all involved, peak memory of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from bench.process_usage import Usage, pss_by_part, total
from bench.target import Target

# The kernel walks all pages of a process to tell its share of them: more often would be felt.
_SAMPLE_SECONDS = 1.0
# A pipeline's own, in the order in which a change passes them.
_STAGES = ("capture", "driver", "jvm", "workers")


@dataclass(frozen=True)
class Spent:
    """CPU seconds and memory; ``parts`` holds the system's own, by part."""

    parts: dict[str, Usage]
    server_cpu_s: float
    destination_cpu_s: float | None
    peak_pss_mb: float | None
    pss_mb: dict[str, float]
    """What each part had at that peak."""

    @property
    def cpu_s(self) -> float:
        return sum(part.cpu_seconds for part in self.parts.values())

    @property
    def stage_cpu_s(self) -> dict[str, float]:
        """By the stages that a change passes, from the source's server to the destination's."""
        own = {name: self.parts[name].cpu_seconds for name in _STAGES if name in self.parts}
        # A native subscription's own process is the destination's.
        destination = {"destination": self.destination_cpu_s or 0.0}
        return {"walsender": self.server_cpu_s, **own, **destination}

    @property
    def peak_rss_mb(self) -> float:
        return round(sum(part.peak_rss_mb for part in self.parts.values()), 1)

    @property
    def rss_mb(self) -> dict[str, float]:
        return {name: part.peak_rss_mb for name, part in self.parts.items()}


class Meter:
    """Counts from its start to its ``read``. Leave the ``with`` before the system stops.

    ``processes`` are the system's own, by part; ``server_cpu`` is what of the source's CPU counts.
    """

    def __init__(
        self,
        processes: Callable[[], dict[str, list[int]]],
        server_cpu: Callable[[], float],
        target: Target | None,
    ) -> None:
        self._processes = processes
        self._server_cpu = server_cpu
        self._target = target
        self._peak_rss_mb: dict[str, float] = {}
        self._pss = PeakPss(self._own_processes)
        self._before = self._look()

    def __enter__(self) -> Self:
        self._pss.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._pss.stop()

    def read(self) -> Spent:
        """What was spent so far."""
        own, server, destination = self._look()
        # Last, because it takes its time: CPU of after the end would count.
        self._pss.sample()
        own_before, server_before, destination_before = self._before
        nothing = Usage()
        parts = {
            name: Usage(
                used.cpu_seconds - own_before.get(name, nothing).cpu_seconds,
                max(used.peak_rss_mb, self._peak_rss_mb.get(name, 0.0)),
            )
            for name, used in own.items()
        }
        return Spent(
            parts,
            server - server_before,
            destination - destination_before if self._target else None,
            self._pss.peak_mb,
            self._pss.parts_mb,
        )

    def _own_processes(self) -> dict[str, list[int]]:
        processes = self._processes()
        for part, pids in processes.items():
            # Some end before the measurement does, and nothing is left of their memory then.
            peak = total(pids).peak_rss_mb
            self._peak_rss_mb[part] = max(self._peak_rss_mb.get(part, 0.0), peak)
        return processes

    def _look(self) -> tuple[dict[str, Usage], float, float]:
        own = {part: total(pids) for part, pids in self._processes().items()}
        server = self._server_cpu()
        destination = self._target.cpu_seconds() if self._target else 0.0
        return own, server, destination


class PeakPss:
    """The greatest sum of several processes' shares of memory, looked at every second.

    Unlike resident memory, a page that forked workers share counts once.
    """

    def __init__(self, processes: Callable[[], dict[str, list[int]]]) -> None:
        """``processes`` are asked for by part."""
        self._processes = processes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._parts: dict[str, float] = {}

    @property
    def peak_mb(self) -> float | None:
        """None where it could not be read: the processes are another user's."""
        return round(sum(self._parts.values()), 1) or None

    @property
    def parts_mb(self) -> dict[str, float]:
        return {part: round(share, 1) for part, share in self._parts.items()}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def sample(self) -> None:
        # Asked for each time: a pool of workers grows.
        now = pss_by_part(self._processes())
        if sum(now.values()) > sum(self._parts.values()):
            self._parts = now

    def _run(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            self.sample()
