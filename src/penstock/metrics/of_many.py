"""What several processes of one pipeline count, each for its destination, shown as one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from penstock.metrics import catalogue as c
from penstock.metrics.health import Answer
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.registry import Registry
from penstock.metrics.summary import together

NOT_BEGUN = "it has not begun yet"
"""Why a destination is not well whose process is only being started."""

_ASK_SECONDS = 5.0


class ManyMetrics:
    """Capture's own counts, and those of each destination's process, asked when somebody looks.

    May be used by any thread.
    """

    def __init__(self, pipeline: str, destinations: Iterable[str]) -> None:
        self.capture = Metrics(pipeline, metrics=(*c.OF_CAPTURE, c.FAILURES, c.RETRIES))
        self._running = Registry(pipeline, metrics=(c.RUNNING,))
        self._places: dict[str, str | None] = {}
        self._ended: dict[str, str] = {}
        for name in destinations:
            self.ended(name, NOT_BEGUN)

    def runs_at(self, destination: str, url: str) -> None:
        """Its process has told where it can be asked."""
        self._places = {**self._places, destination: url}
        self._ended.pop(destination, None)
        self._running.set(c.RUNNING, 1, destination=destination)

    def ended(self, destination: str, why: str) -> None:
        """There is no process to ask."""
        self._places = {**self._places, destination: None}
        self._ended[destination] = why
        self._running.set(c.RUNNING, 0, destination=destination)

    # -- who looks ---------------------------------------------------------------------------------

    def exposition(self) -> bytes:
        """All values of all processes in Prometheus' text format."""
        texts = [self.capture.exposition().decode(), self._running.exposition().decode()]
        texts += [body.decode() for body in self._ask("/metrics").values() if body is not None]
        return generate_latest(_Merged(texts))

    def summary(self) -> dict[str, Any]:
        """All values of all processes in few."""
        answers = self._ask("/summary").items()
        found = {name: json.loads(body) for name, body in answers if body is not None}
        own = self.capture.summary()
        states = {"health": self.is_healthy().body, "ready": self.is_ready().body}
        return {**together(own, found), **states}

    def is_healthy(self) -> Answer:
        """Whether it makes sense to let all of it go on: not where capture is in trouble, or where
        no destination is well. One that is not is named, and left to its own process.
        """
        found = self._answers("/health")
        own = self.capture.health.health()
        wrong = {name: body for name, body in found.items() if body["status"] != "healthy"}
        ok = own.ok and len(wrong) < len(found)
        return self._answer("healthy", ok, own, found)

    def is_ready(self) -> Answer:
        """Whether every table of every destination is brought on."""
        found = self._answers("/ready")
        own = self.capture.health.health()
        ok = own.ok and all(body["status"] == "ready" for body in found.values())
        return self._answer("ready", ok, own, found)

    def _answer(
        self, good: str, ok: bool, own: Answer, found: Mapping[str, dict[str, Any]]
    ) -> Answer:
        reasons = [*own.body["reasons"]]
        for name, body in found.items():
            reasons += [f"destination {name}: {reason}" for reason in body["reasons"]]
        status = good if ok else f"not {good}"
        return Answer(ok, {"status": status, "reasons": reasons, "destinations": dict(found)})

    def _answers(self, path: str) -> dict[str, dict[str, Any]]:
        found = {}
        for name, body in self._ask(path).items():
            if body is not None:
                found[name] = json.loads(body)
            else:
                why = self._ended.get(name, "its process does not answer")
                found[name] = {"status": "not running", "reasons": [why]}
        return found

    def _ask(self, path: str) -> dict[str, bytes | None]:
        """What each process answers; None where it does not."""
        places = self._places
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            answers = pool.map(lambda url: url and _get(url, path), places.values())
            return dict(zip(places, answers, strict=True))


class _Merged(Collector):
    """Families of several texts, each once."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Family]:
        found: dict[str, Family] = {}
        for text in self._texts:
            for family in text_string_to_metric_families(text):
                held = found.setdefault(family.name, family)
                if held is not family:
                    held.samples += family.samples
        yield from found.values()


def _get(url: str, path: str) -> bytes | None:
    conn = HTTPConnection(urlsplit(url).netloc, timeout=_ASK_SECONDS)
    try:
        conn.request("GET", path)
        return conn.getresponse().read()
    except (OSError, HTTPException):
        return None
    finally:
        conn.close()
