"""The ``penstock`` data source: a change log as a stream, or a table as it is (table_reader.py).

The stream gives one row a change; with ``table`` set, the typed rows of that table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.changelog import chain
from penstock.changelog.batch_size import BatchSize
from penstock.changelog.chain import Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment_run import RUN_BYTES, read_runs
from penstock.changelog.view import LogView
from penstock.model.errors import ConfigError
from penstock.model.lsn import NOTHING, Frontier, parse_lsn

if TYPE_CHECKING:
    from penstock.spark.table_reader import PenstockTableReader

DEFAULT_MAX_BYTES = 128 * 1024 * 1024
DEFAULT_PARALLELISM = 8
# Below this a task of its own costs more than it gains.
_SMALLEST_TASK = 4 * 1024 * 1024

_OPTIONS = (
    "path",
    "storageoptions",
    "table",
    "start",
    "maxbytespertrigger",
    "maxgrowth",
    "bufferbytes",
    "parallelism",
    "reader",
)


@dataclass
class _Share(InputPartition):
    """One task's pointers."""

    pointers: tuple[Pointer, ...]


class PenstockSource(DataSource):
    """Options of a stream: path (the change log's folder, or its place in an object store, then
    with storageOptions as a JSON object), table, start (earliest, latest or an
    LSN), maxBytesPerTrigger, maxGrowth (how many times that a batch may take while more is
    waiting), bufferBytes (what a task reads at a time), parallelism, reader (a name: the log then
    keeps what it still needs). Of a batch read: url or pipeline (a file), table, columns, where,
    chunkBytes, snapshotAge, snapshotIdle, snapshotGrace.
    """

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @property
    def _is_table_read(self) -> bool:
        """Whether a table is to be read, and not a change log.

        What only that needs is imported where it is used, and so is what only tasks need: Spark
        starts a process for each stream, and that would be most of what it loads.
        """
        return bool({"url", "pipeline"} & {key.lower() for key in self.options})

    def schema(self) -> StructType | str:
        if self._is_table_read:
            from penstock.spark.table_reader import read_schema

            return read_schema(self.options)
        settings = _Settings.of(self.options)
        from penstock.spark import envelope, typed_rows

        if settings.table is not None:
            return typed_rows.spark_schema(typed_rows.find_table(settings.log, settings.table))
        return envelope.SPARK_SCHEMA

    def reader(self, schema: StructType) -> PenstockTableReader:
        if not self._is_table_read:
            raise ConfigError(
                "spark.read reads a table, and needs the option url or pipeline for it; a change "
                "log is read with spark.readStream"
            )
        from penstock.spark.table_read_settings import TableReadSettings
        from penstock.spark.table_reader import PenstockTableReader

        return PenstockTableReader(TableReadSettings.of(self.options), schema)

    def streamReader(self, schema: StructType) -> PenstockStreamReader:  # noqa: N802 (Spark's)
        if self._is_table_read:
            raise ConfigError(
                "spark.readStream reads a change log, and needs the option path for it; a table is "
                "read by url with spark.read"
            )
        return PenstockStreamReader(_Settings.of(self.options), schema)


@dataclass(frozen=True)
class _Settings:
    path: str
    options: dict[str, str] = field(repr=False)
    table: str | None
    start: str
    max_bytes: int
    max_growth: int
    buffer_bytes: int
    parallelism: int
    reader: str | None

    @classmethod
    def of(cls, given: dict[str, str]) -> _Settings:
        options = {key.lower(): value for key, value in given.items()}
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ConfigError(
                f"the penstock source has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}"
            )
        if "path" not in options:
            raise ConfigError("the penstock source needs the option path: the change log's folder")
        return cls(
            path=options["path"],
            options=_storage_options(options.get("storageoptions", "{}")),
            table=options.get("table"),
            start=options.get("start", "earliest"),
            max_bytes=_positive(options, "maxbytespertrigger", DEFAULT_MAX_BYTES),
            max_growth=_positive(options, "maxgrowth", 1),
            buffer_bytes=_positive(options, "bufferbytes", RUN_BYTES),
            parallelism=_positive(options, "parallelism", DEFAULT_PARALLELISM),
            reader=options.get("reader"),
        )

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(self.path, self.options)


class PenstockStreamReader(DataSourceStreamReader):
    """Plans micro-batches on the driver and reads their parts on executors.

    Its offsets are frontiers: a batch always ends at a commit.
    """

    def __init__(self, settings: _Settings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._initial: Frontier | None = None
        self._last: Frontier | None = None
        self._size = BatchSize(settings.max_bytes, settings.max_growth)
        self._view = LogView(settings.log)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 (Spark's)
        # Spark asks after the first latestOffset(): both must mean the same start.
        if self._initial is None:
            self._initial = self._start()
            # A named reader counts at once: Spark tells of a batch only when it plans the next.
            self._record(self._initial)
        return self._initial.to_json()

    def latestOffset(self, *_start_and_limit: object) -> dict[str, str]:  # noqa: N802 (Spark's)
        # Spark 4.1 passes nothing; from 4.2 on a start and a limit, which our own state stands for.
        last = self._last or Frontier.from_json(self.initialOffset())
        listing = self._view.listing()
        size = self._size.next(chain.waiting_bytes(listing.segments, listing.sizes, last))
        batch = chain.next_batch(listing.segments, listing.sizes, last, size.allowed)
        if batch is not None:
            self._last, self._size = batch.frontier, size
        else:
            self._last = last
        return self._last.to_json()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        first, last = Frontier.from_json(start), Frontier.from_json(end)
        # After a restart this is the first call, and the only word on where the query stands.
        self._last = max(self._last or last, last)
        listing = self._view.listing(at_least=last)
        if last.commit_lsn <= first.commit_lsn:
            return []
        pointers = chain.between(listing.segments, listing.sizes, first.commit_lsn, last.commit_lsn)
        shares = share_out(pointers, self._settings.parallelism)
        return [_Share(share) for share in shares if share]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)  # noqa: S101 (Spark gives back what partitions made)
        settings = self._settings
        from penstock.decode.changes import decode_changes
        from penstock.spark import envelope, typed_rows

        table = None if settings.table is None else typed_rows.parse_table(settings.table)
        for run in read_runs(settings.log, partition.pointers, settings.buffer_bytes):
            changes = decode_changes(run.rows, run.tables, run.origins)
            if table is None:
                yield from envelope.record_batches(changes)
            else:
                yield from typed_rows.record_batches(changes, table, self._schema)

    def commit(self, end: dict[str, str]) -> None:
        self._record(Frontier.from_json(end))

    def _record(self, frontier: Frontier) -> None:
        """Tell the log what this reader holds, if it has a name."""
        if self._settings.reader is not None:
            self._settings.log.set_reader(self._settings.reader, frontier)

    def _start(self) -> Frontier:
        start = self._settings.start
        if start == "earliest":
            segments = self._settings.log.list().segments
            return Frontier(segments[0].after, 0) if segments else NOTHING
        if start == "latest":
            return self._settings.log.list().frontier or NOTHING
        try:
            return Frontier(parse_lsn(start), 0)
        except ValueError:
            raise ConfigError(
                f"option start of the penstock source: expected earliest, latest or an LSN "
                f"such as 16/B374D848, found {start!r}"
            ) from None


def share_out(pointers: tuple[Pointer, ...], parallelism: int) -> list[tuple[Pointer, ...]]:
    """Cut the pointers into runs of about equal size, in order, at most ``parallelism`` of them."""
    total = sum(pointer.size for pointer in pointers)
    target = max(_SMALLEST_TASK, -(-total // parallelism))
    shares: list[list[Pointer]] = [[]]
    size = 0
    for pointer in pointers:
        if shares[-1] and size + pointer.size // 2 > target and len(shares) < parallelism:
            shares.append([])
            size = 0
        shares[-1].append(pointer)
        size += pointer.size
    return [tuple(share) for share in shares]


def _storage_options(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise ConfigError(
            "option storageOptions of the penstock source: expected a JSON object of texts"
        )
    return found


def _positive(options: dict[str, Any], name: str, default: int) -> int:
    text = str(options.get(name, default))
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"option {name} of the penstock source: {text!r} is no positive number")
    return int(text)
