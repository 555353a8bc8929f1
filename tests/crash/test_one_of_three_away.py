"""Three destinations on one log, of which one is away under load: what the others notice of it.

``PENSTOCK_OUTAGE_SECONDS`` is how long it is away. How late changes are at the others is compared
with as long a time before, in the same run, and printed (`pytest -s`); judged only where nothing
else ran on the machine at the start: what others do there hits the one time and not the other.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from penstock.config import load_pipeline
from penstock.destination.files.folding import fold
from penstock.model.lsn import parse_lsn
from tests.crash.penstock_run import PATIENCE, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer
from tests.kafka_messages import read_topics
from tests.kafka_server import KafkaServer

pytestmark = [pytest.mark.slow, pytest.mark.release]

_ROWS = 20
_PAUSE_SECONDS = 0.05
_LOOK_SECONDS = 0.01
_CURRENT_SECONDS = 5.0
_OTHERS = ("events", "lake")
_MOST_TIMES = 2.0
"""So much later may be what is latest at the others, while one is away."""


class SteadyLoad:
    """Some rows many times a second, and when each destination held them."""

    def __init__(self, pipeline: PipelineUnderTest) -> None:
        self._pipeline = pipeline
        self._committed: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._write, self._watch)]
        self.late: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """By destination: when it was committed, and how many seconds later it was there."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def all_are_current(self, *names: str) -> bool:
        """Whether each has what is a few seconds old, and had so the last hundred times."""
        now = time.monotonic()
        last = [self.late[name][-100:] for name in names]
        return all(
            len(each) == 100
            and each[-1][0] > now - _CURRENT_SECONDS
            and max(seconds for _, seconds in each) < _CURRENT_SECONDS
            for each in last
        )

    def p99(self, name: str, since: float, until: float) -> float:
        late = sorted(seconds for at, seconds in self.late[name] if since <= at < until)
        assert len(late) > 50, f"{name} was hardly looked at"
        return late[int(len(late) * 0.99)]

    def _write(self) -> None:
        insert = "INSERT INTO items (note) SELECT repeat('x', 100) FROM generate_series(1, %s)"
        with psycopg.connect(self._pipeline.url, autocommit=True) as conn:
            while not self._stop.wait(_PAUSE_SECONDS):
                conn.execute(insert, [_ROWS])
                at = time.monotonic()
                row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
                assert row is not None
                self._committed.append((at, parse_lsn(row[0])))

    def _watch(self) -> None:
        """A destination's position stands beside the log as soon as it holds the changes."""
        seen: dict[str, int] = defaultdict(int)
        while not self._stop.wait(_LOOK_SECONDS):
            for reader, state in self._pipeline.log.all_readers().items():
                name, now = reader.rpartition(".")[2], time.monotonic()
                while seen[name] < len(self._committed):
                    at, lsn = self._committed[seen[name]]
                    if state.frontier.end_lsn < lsn:
                        break
                    self.late[name].append((at, now - at))
                    seen[name] += 1


def _ids(pipeline: PipelineUnderTest, name: str, brokers: str, target_url: str) -> set[int]:
    """What a destination holds."""
    view = load_pipeline(pipeline.file, only=name)
    if name == "lake":
        found = fold(Path(view.destination_options["path"]), view.delivery, "public", "items")
        return {int(row[0]) for row in found.rows}
    if name == "events":
        topic = f"{view.delivery}.public.items"
        events = (
            json.loads(message.value() or b"null")
            for message in read_topics(brokers, lambda each: each == topic)
        )
        return {event["new"]["id"] for event in events if event}
    return _table_ids(target_url)


def _table_ids(url: str) -> set[int]:
    with psycopg.connect(url) as conn:
        return {found for (found,) in conn.execute("SELECT id FROM items")}


def test_one_is_away_and_the_others_hardly_notice(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, fresh_server: FreshServer
) -> None:
    seconds = float(os.environ.get("PENSTOCK_OUTAGE_SECONDS", "120"))
    # By its load when nothing of this has begun.
    is_idle = os.getloadavg()[0] <= (os.cpu_count() or 1)
    target = fresh_server()
    target_url = target.create_database("copy")
    pipeline.execute(
        "CREATE TABLE items (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)"
    )
    pipeline.configure(copy=True, grace="0s")
    content: dict[str, Any] = yaml.safe_load(pipeline.file.read_text())
    del content["destination"]
    content["spark"] = {"master": "local[1, 4]"}
    content["destinations"] = {
        "warehouse": {"type": "postgres", "url": target_url},
        "events": {"type": "kafka", "brokers": kafka_server.brokers},
        "lake": {"type": "files", "path": str(pipeline.folder / "lake"), "format": "ndjson"},
    }
    pipeline.file.write_text(yaml.safe_dump(content))
    run = PenstockRun(pipeline.file)
    load = SteadyLoad(pipeline)
    try:
        # Not in the middle of what piled up while three JVMs started.
        wait_until(lambda: load.all_are_current(*content["destinations"]), "all follow", PATIENCE)
        began = time.monotonic()
        time.sleep(seconds)
        away = time.monotonic()
        target.kill()
        time.sleep(seconds)
        back = time.monotonic()
        target.start()
        wait_until(lambda: load.late["warehouse"][-1][0] > back, "it has all of it", PATIENCE)
        load.stop()
        end = pipeline.wal_end()
        pipeline.execute("INSERT INTO items (note) VALUES ('last')")

        def all_hold() -> bool:
            held = pipeline.log.all_readers().values()
            return min(state.frontier.end_lsn for state in held) > end

        wait_until(all_hold, "all of them hold everything", PATIENCE)
        run.stop()
        wanted = _table_ids(pipeline.url)
        for name in content["destinations"]:
            assert _ids(pipeline, name, kafka_server.brokers, target_url) == wanted, name
        for name in _OTHERS:
            before, meanwhile = load.p99(name, began, away), load.p99(name, away, back)
            print(
                f"{name}: p99 {before * 1000:.0f} ms with all, {meanwhile * 1000:.0f} ms while the"
                f" warehouse was away for {seconds:.0f} s: {meanwhile / before:.2f} times"
                + ("" if is_idle else " (others ran beside it: not judged)")
            )
            assert not is_idle or meanwhile <= _MOST_TIMES * before
    finally:
        load.stop()
        run.end()
