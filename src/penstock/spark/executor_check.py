"""Whether the executors of a cluster can do what tasks do. Asked on each of them."""

from __future__ import annotations

import json
import os
import platform
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.storage.contract import Storage
from penstock.config.models import PipelineConfig
from penstock.destination.registry import make_destination
from penstock.model.errors import PenstockError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.preflight.all_checks import CheckResult
from penstock.spark.jvm import JVM_GONE, jvm_needed
from penstock.spark.session import end_session, start_session
from penstock.spark.shared_folders import SharedFolder, shared_folders
from penstock.spark.worker_time import executor_count

_SCHEMA = "found string"
# Long enough for every executor to get one of its share.
_TASK_SECONDS = 0.5
_TASKS_EACH = 4
_WAIT_SECONDS = 30.0
# Executors come one after another: no more are expected after so long a pause.
_SETTLED_SECONDS = 5.0
# How often those that got no task are asked once more.
_ROUNDS = 3

_PACK = (
    "Give executors Penstock: `penstock pack`, and name the archive in spark.environment; or use "
    "an image that has it (docs/clusters.md)."
)


def check_executors(views: Sequence[PipelineConfig]) -> list[CheckResult]:
    """One result for each executor that the cluster gives. Starts one session for it. ``views`` are
    the destinations of one pipeline.
    """
    root = ChangeLog.of(views[0].change_log).root
    name = f"check-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        try:
            root.write(name, b"read me", durable=False)
            stack.callback(_removed, root, name)
            folders = [stack.enter_context(folder.shown(name)) for folder in shared_folders(views)]
            return _asked(_Probe(views, name, folders))
        except PenstockError as error:
            return [CheckResult("executors", "failed", error.message, error.remedy)]


def _removed(root: Storage, name: str) -> None:
    with suppress(PenstockError):
        root.delete(name)


def _asked(probe: _Probe) -> list[CheckResult]:
    """Raises PenstockError where the cluster cannot be asked."""
    config = probe.config
    try:
        spark = start_session(f"{config.name} check", config.spark)
    except (PySparkException, *JVM_GONE) as error:
        raise PenstockError(
            f"no session could be started: {_short(error)}",
            remedy=f"See that {config.spark.master} answers, and look at spark.conf.",
        ) from None
    try:
        with jvm_needed():
            found: dict[str, dict[str, Any]] = {}
            for _ in range(_ROUNDS):
                count = _wait_executors(spark.sparkContext)
                tasks = spark.range(0, count * _TASKS_EACH, 1, count * _TASKS_EACH)
                rows = tasks.mapInArrow(probe, _SCHEMA).collect()
                found |= {(each := json.loads(row["found"]))["place"]: each for row in rows}
                if len(found) >= count:
                    break
    except (PySparkException, PenstockError) as error:
        raise PenstockError(f"no task could run: {_short(error)}", remedy=_PACK) from None
    finally:
        end_session(spark)
    return [*map(_result, found.values()), *silent_executors(count, len(found))]


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def silent_executors(count: int, answered: int) -> list[CheckResult]:
    """What is said where some of those that are there were never heard."""
    if answered >= count:
        return []
    return [
        CheckResult(
            "executors",
            "failed",
            f"{answered} of {count} executors answered; the others got no task, or lost it",
            "Look at the logs of the others on their workers: most likely their Python does not "
            f"start. {_PACK}",
        )
    ]


def _wait_executors(context: SparkContext) -> int:
    """How many there are, once no more come."""
    return settled_count(lambda: executor_count(context) or 0)


def settled_count(
    look: Callable[[], int],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """What ``look`` gives once it has not grown for a while; at least 1."""
    began = since = clock()
    count = 0
    while True:
        before, count = count, max(count, look())
        now = clock()
        if count != before:
            since = now
        if (count and now - since >= _SETTLED_SECONDS) or now - began >= _WAIT_SECONDS:
            return max(count, 1)
        sleep(0.5)


class _Probe:
    """What runs on an executor; picklable."""

    def __init__(
        self, views: Sequence[PipelineConfig], probe: str, folders: Sequence[SharedFolder]
    ) -> None:
        self._views = tuple(views)
        self.config = views[0]
        self._probe = probe
        self._folders = folders

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
        asked: tuple[Callable[[], None], ...] = (
            self._log,
            self._source,
            *(partial(folder.require, self._probe) for folder in self._folders),
            *(partial(_destination, view) for view in self._views),
        )
        for what in asked:
            try:
                what()
            except PenstockError as error:
                yield error.message, error.remedy

    def _log(self) -> None:
        log = ChangeLog.of(self.config.change_log)
        if log.root.read_bytes(self._probe) != b"read me":
            raise PenstockError(
                f"does not see the change log {log.root.path}",
                remedy="Use a folder that all machines share, or object storage "
                "(docs/object_storage.md).",
            )

    def _source(self) -> None:
        connect(self.config.source.url, application_name="penstock check").close()


def _destination(config: PipelineConfig) -> None:
    made = make_destination(config.destination_type, config.destination_options, config.delivery)
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
