"""Whether the executors of a cluster can do what tasks do. Asked on each of them."""

from __future__ import annotations

import json
import os
import platform
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import pyarrow as pa
from pyspark.errors import PySparkException

from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.registry import make_destination
from penstock.model.errors import PenstockError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.preflight.all_checks import CheckResult
from penstock.spark.jvm import jvm_needed
from penstock.spark.session import end_session, start_session

_SCHEMA = "found string"
# Long enough for every executor to get one of its share.
_TASK_SECONDS = 0.5
_TASKS_EACH = 4
_WAIT_SECONDS = 30.0


def check_executors(config: PipelineConfig) -> list[CheckResult]:
    """One result for each executor that the cluster gives. Starts a session for it."""
    log = ChangeLog.of(config.change_log)
    probe = f"check-{uuid.uuid4().hex}"
    log.root.write(probe, b"read me", durable=False)
    spark = start_session(f"{config.name} check", config.spark)
    try:
        with jvm_needed():
            count = _wait_executors(spark.sparkContext)
            tasks = spark.range(0, count * _TASKS_EACH, 1, count * _TASKS_EACH)
            rows = tasks.mapInArrow(_Probe(config, probe), _SCHEMA).collect()
    except (PySparkException, PenstockError) as error:
        return [
            CheckResult(
                "executors",
                "failed",
                f"no task could run: {' '.join(str(error).split())[:600]}",
                "Give executors Penstock: `penstock pack`, and name the archive in "
                "spark.environment; or use an image that has it (docs/clusters.md).",
            )
        ]
    finally:
        log.root.delete(probe)
        end_session(spark)
    found = {(each := json.loads(row["found"]))["place"]: each for row in rows}
    return [_result(each) for each in found.values()]


def _wait_executors(context: object) -> int:
    """How many there are, once some are there: they come one after another."""
    memory = context._jsc.sc()  # type: ignore[attr-defined]
    deadline = time.monotonic() + _WAIT_SECONDS
    count = 0
    while time.monotonic() < deadline:
        before, count = count, memory.getExecutorMemoryStatus().size() - 1
        if count and count == before:
            break
        time.sleep(1)
    return max(count, 1)


class _Probe:
    """What runs on an executor; picklable."""

    def __init__(self, config: PipelineConfig, probe: str) -> None:
        self._config = config
        self._probe = probe

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            time.sleep(_TASK_SECONDS)
            # An executor has a working folder of its own.
            place = f"{socket.gethostname()} {os.getcwd()}"  # noqa: PTH109 (for people)
            found = {
                "place": place,
                "host": socket.gethostname(),
                "has": f"Penstock {version('penstock')} on Python {platform.python_version()}",
                "wrong": list(self._wrong()),
            }
            yield pa.RecordBatch.from_pydict({"found": [json.dumps(found)]})

    def _wrong(self) -> Iterator[tuple[str, str]]:
        for what in (self._log, self._source, self._destination):
            try:
                what()
            except PenstockError as error:
                yield error.message, error.remedy

    def _log(self) -> None:
        log = ChangeLog.of(self._config.change_log)
        if log.root.read_bytes(self._probe) != b"read me":
            raise PenstockError(
                f"does not see the change log {log.root.path}",
                remedy="Use a folder that all machines share, or object storage "
                "(docs/object_storage.md).",
            )

    def _source(self) -> None:
        connect(self._config.source.url, application_name="penstock check").close()

    def _destination(self) -> None:
        config = self._config
        made = make_destination(
            config.destination_type, config.destination_options, config.delivery
        )
        try:
            made.check()
        finally:
            made.close()


def _result(found: dict[str, object]) -> CheckResult:
    name, wrong = f"executor on {found['host']}", found["wrong"]
    assert isinstance(wrong, list)  # noqa: S101 (it is what the probe made)
    if not wrong:
        return CheckResult(
            name, "passed", f"{found['has']}; reaches change log, source and destination"
        )
    said = "; ".join(message for message, _ in wrong)
    return CheckResult(name, "failed", said, " ".join(remedy for _, remedy in wrong))
