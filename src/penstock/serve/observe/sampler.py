"""Asks every running pipeline now and then for its metrics, and keeps them as series."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.request import ProxyHandler, build_opener

from penstock.cadence import paced
from penstock.metrics.summary import TIMES, TOTALS, of_destination
from penstock.serve.catalogue import Catalogue
from penstock.serve.observe.series import Series, SeriesFile
from penstock.serve.state_folder import StateFolder
from penstock.serve.supervise.supervisor import RunSupervisor

SAMPLE_SECONDS = paced(2.0)
_ANSWER_SECONDS = 5.0
_MOST_BYTES = 2**20
_AT_ONCE = 4
_NUMBERS = (*TOTALS, *(f"{name}_seconds" for name in TIMES))

_log = logging.getLogger(__name__)


class Sampler:
    """``summary`` is what a pipeline last said of itself; None where it says nothing. With
    ``destination``, what it said of one of several.
    """

    def __init__(
        self, catalogue: Catalogue, supervisor: RunSupervisor, folder: StateFolder
    ) -> None:
        self._folder = folder
        self._catalogue = catalogue
        self._supervisor = supervisor
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], Series] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-sampler", daemon=True)
        # Metrics are on this machine: no proxy is asked for the way.
        self._opener = build_opener(ProxyHandler({}))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def series(self, name: str, destination: str = "") -> Series:
        with self._lock:
            found = self._series.get((name, destination))
            if found is None:
                kept = SeriesFile(self._folder.series(name, destination))
                found = self._series[name, destination] = Series(kept)
            return found

    def summary(self, name: str, destination: str = "") -> dict[str, Any] | None:
        whole = self._summaries.get(name)
        return of_destination(whole, destination) if whole and destination else whole

    def _run(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, "penstock-sample") as pool:
            while not self._ending.wait(SAMPLE_SECONDS):
                try:
                    list(pool.map(self._sample, [file.name for file in self._catalogue.all()]))
                except Exception:
                    _log.exception("metrics were not read", extra={"event": "sample_failed"})

    def _sample(self, name: str) -> None:
        file = self._catalogue.get(name)
        url = None if file is None else self._supervisor.view(file).metrics
        said = None if url is None else self._ask(url, name)
        if said is None:
            self._summaries.pop(name, None)
        else:
            self._summaries[name] = said
        names = () if file is None else tuple(view.destination_name for view in file.views)
        for destination in dict.fromkeys(("", *names)):
            series, of_it = self.series(name, destination), self.summary(name, destination)
            if of_it is None:
                series.ended()
            else:
                series.add(time.time(), of_it)

    def _ask(self, url: str, name: str) -> dict[str, Any] | None:
        """None where nobody answers, or somebody else does: the port may be another's by now."""
        with suppress(OSError, ValueError, AttributeError):
            with self._opener.open(f"{url}/summary", timeout=_ANSWER_SECONDS) as answer:
                said = json.loads(answer.read(_MOST_BYTES))
            if isinstance(said, dict) and said.get("pipeline") == name:
                each = (said, *said.get("destinations", {}).values())
                return said if all(map(_has_numbers, each)) else None
        return None


def _has_numbers(said: Any) -> bool:
    return all(isinstance(said.get(key), int | float) for key in _NUMBERS)
