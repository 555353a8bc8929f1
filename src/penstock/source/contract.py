"""What the driver and Spark know of a source, wherever rows come from.

``Source`` makes the others. A ``SourceSession`` belongs to the thread that runs the pipeline; a
``CopySource`` to those that copy tables; a ``Capture`` is a process of its own, which fills the
change log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.changelog.changelog import ReaderState
from penstock.config.table_patterns import Rules
from penstock.model.errors import SourceError, TableRefused
from penstock.model.publication_state import PublicationState
from penstock.model.source_identity import SeenSource
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.source.schema_dump import DumpOptions, SchemaDump, SequenceValue


@dataclass(frozen=True)
class Subscription:
    """What a pipeline has in its source. Every change after ``start_lsn`` comes through the slot.

    ``tables`` are the publications' own entries: roots, not their partitions. ``insert_only`` are
    those of them whose updates and deletes do not come.
    """

    publications: tuple[str, ...]
    uuid: str
    slot: str
    start_lsn: int
    tables: tuple[TableName, ...]
    insert_only: tuple[TableName, ...]
    is_new: bool = field(default=False, compare=False)
    """Whether this call made it."""

    @property
    def publication(self) -> str:
        """The first one, after which the pipeline's things are named."""
        return self.publications[0]


@dataclass(frozen=True)
class Reconciled:
    """What the publications hold now, and what was changed to get there.

    ``published`` are all tables, by oid, under their present names: one that was dropped at the
    source is not among them, one that was renamed has its new name. ``added`` and ``removed`` are
    what this call changed. ``moved`` were followed in another way before: whole, or inserts only.
    ``skipped`` match and are not published, each with the reason. ``withdrawn``, by oid, are those
    of them that must not be published as long as they are what they are, though they were.
    ``narrowed`` were published only in part until this call, each with what was done to it.
    ``state`` is what all of it is now. ``columns`` are the numbers of the published tables'
    columns, by name.
    """

    published: Mapping[int, TableName]
    added: Mapping[int, TableName]
    removed: Mapping[int, TableName]
    moved: Mapping[int, TableName]
    skipped: Mapping[TableName, str]
    withdrawn: Mapping[int, str] = field(default_factory=dict)
    narrowed: Mapping[int, str] = field(default_factory=dict)
    state: PublicationState = field(default_factory=PublicationState)
    columns: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def has_changed(self) -> bool:
        return bool(self.added or self.removed or self.moved)

    def gone(self, known: Iterable[int]) -> set[int]:
        """Those of the known tables that are not published (any more): removed, or dropped."""
        return set(known) - self.published.keys()


@dataclass(frozen=True)
class LeafFile:
    """A partition's file node, and the transaction that last changed its entry in the catalogue."""

    file: int
    xid: int


class SourceSession(ABC):
    """A session that keeps every other driver of the same pipeline out.

    Raises SourceUnavailable where another try may succeed.
    """

    @abstractmethod
    def keep(self) -> None:
        """Called often: connects anew where the session was lost. Raises SourceError where another
        driver has taken the pipeline meanwhile.
        """

    @abstractmethod
    def seen(self) -> SeenSource:
        """What the source says of itself: the same object until the session connects anew, or
        subscribes.
        """

    @abstractmethod
    def subscribe(self) -> Subscription:
        """Make what the pipeline needs in the source, or find it."""

    @abstractmethod
    def position(self) -> int:
        """The LSN up to which the source has written."""

    @abstractmethod
    def published(self) -> Collection[int]:
        """The oids of the tables whose changes come."""

    @abstractmethod
    def matching(self) -> list[TableDefinition]:
        """All tables that the pipeline file names, also those whose changes cannot come."""

    @abstractmethod
    def definitions(self, tables: Sequence[TableName]) -> list[TableDefinition]:
        """Tables as they are now, in this order; one that is gone is left out."""

    @abstractmethod
    def definitions_of(self, tables: Sequence[int]) -> dict[int, TableDefinition]:
        """The same for tables that are known by their oid, whatever they are called."""

    @abstractmethod
    def describer(self) -> Callable[[str], Mapping[int, TableDefinition]]:
        """What reads the documents that come with schema changes, by the columns of now."""

    @abstractmethod
    def reconcile(self, rules: Rules) -> Reconciled:
        """Let those tables be published that patterns and rules ask for."""

    def tables_come_in_stream(self) -> bool:
        """Whether the stream itself brings new tables: a schema change tells of each before its
        first row, and no row is behind that. They are enrolled before it is followed.
        """
        return False

    @abstractmethod
    def leaf_files(self, tables: Collection[int]) -> dict[int, dict[int, LeafFile]]:
        """The partitions with rows of those of the tables that are partitioned."""

    @abstractmethod
    def acknowledge(self, versions: Sequence[int]) -> None:
        """Note in the source that the destination holds these schema changes. Never raises:
        nothing depends on it.
        """


class Snapshot(Protocol):
    """What copies read under: it shows every commit before ``lsn``, and no other."""

    @property
    def lsn(self) -> int: ...


class Snapshots(Protocol):
    """The snapshots of a pipeline's copies, each with a number. They outlive the driver."""

    def found(self) -> Mapping[int, Any]:
        """Those that an earlier run left and that still live, by number."""

    def take(self) -> tuple[int, Any]:
        """A new one, and its number. Waits for open transactions."""

    def keep(self) -> None:
        """Called often while they are needed."""

    def release(self, number: int) -> None:
        """Nobody reads under it any more."""


@dataclass(frozen=True)
class CopyPlans:
    """By the tables' oids: what can be copied, and why the others cannot. One that is gone, or is
    another one by now, is in neither.
    """

    found: Mapping[int, CopyPlan] = field(default_factory=dict)
    refused: Mapping[int, TableRefused] = field(default_factory=dict)


OpenChunk = Callable[[TableSchema, Chunk, str | None], ChunkReader]
"""Opens a chunk of a table, with the plan's condition, on an executor; picklable."""

Keys = Sequence[tuple[str, ...]]
ReadKeys = Callable[[TableDefinition, Keys], TableRows]
"""Reads the rows that have these keys, under a snapshot."""


class ReadByWorkers(Protocol):
    """What it takes to read under a snapshot in another process, on any machine."""

    def place(self) -> str:
        """Which database of which server is read: a snapshot is one of just that."""

    def snapshot_ticket(self, snapshot: Any) -> Mapping[str, Any]:
        """JSON by which such a process reads under one of the snapshots."""

    def ticket_opener(self, ticket: Mapping[str, Any]) -> OpenChunk:
        """As ``CopySource.opener``, in such a process."""


class CopySource(ABC):
    """The rows that are there before the stream."""

    snapshots: Snapshots

    @abstractmethod
    def define(self, tables: Collection[int]) -> Mapping[int, TableDefinition]:
        """What tables (by oid) are like now; those that are gone are left out."""

    def leaf_files(self, tables: Collection[int]) -> Mapping[int, Mapping[int, LeafFile]]:
        """As that of a session."""
        return {}

    @abstractmethod
    def plan(self, tables: Sequence[TableDefinition]) -> CopyPlans:
        """What a copy of each table has to read."""

    @abstractmethod
    def layout(self, table: TableDefinition) -> TableSchema:
        """The columns that a copy of the table brings. Raises TableRewritten where it is gone."""

    @abstractmethod
    def opener(self, snapshot: Any) -> OpenChunk:
        """For chunks that are read under one of the snapshots."""

    def for_workers(self) -> ReadByWorkers | None:
        """How workers read it, on any machine; None where they cannot."""
        return None

    @abstractmethod
    def snapshot_of_now(self) -> AbstractContextManager[tuple[int, ReadKeys]]:
        """For as long as the block: the point of a new snapshot, and how to read rows under it."""

    @abstractmethod
    def retained_bytes(self) -> int | None:
        """What the source keeps for the pipeline; None where it cannot be asked."""

    def dump_schema(self, snapshot: Any, options: DumpOptions) -> SchemaDump:
        """The source's whole schema under one of the snapshots, or None: as it is now. Raises
        SourceError.
        """
        raise SourceError("this source cannot tell its whole schema")

    def sequences(self) -> Sequence[SequenceValue]:
        """Where the source's sequences stand now."""
        return ()


OnSegment = Callable[[str, int], None]
"""Takes a segment's name and its size."""


class Capture(ABC):
    """The process that fills the change log, as a child of this one."""

    @abstractmethod
    def start(self) -> None:
        """Start it, or start it again once it has ended."""

    @abstractmethod
    def ended(self) -> bool:
        """True once it has ended by itself for a reason that a restart may heal.

        Raises the error with which it gave up.
        """

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """What this very process last said of itself; empty before it said anything."""

    @abstractmethod
    def tell(self, reader: str, state: ReaderState) -> None:
        """What the reader's destination holds: it may be confirmed. For any thread."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to stop, and insist if it does not."""


class Source(ABC):
    """Where a pipeline's rows come from."""

    @abstractmethod
    def session(
        self, purpose: str, *, supervises: bool = False
    ) -> AbstractContextManager[SourceSession]:
        """The pipeline's own session for as long as the block; of several destinations, that of
        one, or with ``supervises`` that of who starts all of them. Raises SourceError where
        somebody else has it. ``purpose`` is what others see of it.
        """

    @abstractmethod
    def capture(
        self, file: Path, on_segment: OnSegment | None = None, *, stands_by: bool = False
    ) -> Capture:
        """Not started yet. ``file`` is the pipeline file; ``on_segment`` is told of every segment
        that was added to the log, by a thread of capture's own. ``stands_by``: while another
        process captures for the pipeline, it waits for its end.
        """

    @abstractmethod
    def copies(self, file: Path, check: Callable[[], None]) -> CopySource:
        """``check`` is called while something takes long; what it raises ends that."""
