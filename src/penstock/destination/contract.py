"""What every destination promises. tests/contract runs one suite against all of them.

Written after Spark's own writers: executors write and return receipts, the driver commits them.

1. ``open()`` takes the destination over: it repairs what a crash left and fences earlier drivers.
   ``prepare(definitions)`` then makes room for the tables that are to come.
2. For each micro-batch, tasks on executors call ``task_writer().write(changes)``, in parallel and
   possibly twice (a task that fails is tried again); each returns a receipt. Nothing that a task
   wrote may be visible as delivered before its receipt is committed. The tasks of the next batch
   may be at work while a batch is being committed; those of the one after that are not.
   Queues cannot take back what was sent: their writers are laned. Changes are encoded by tasks as
   above, then brought together lane by lane, and each lane is sent in order, by one task.
3. The driver calls ``commit(receipts, frontier)`` with one receipt of each task, in position order.
   When it returns, changes and frontier are durable, together. A batch that is replayed after a
   crash between the two leaves no trace where ``exactly_once`` is claimed.
4. Rows that are there before the stream are copied chunk by chunk: tasks call
   ``chunk_writer().write(rows)``, the driver ``commit_chunks(receipts)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from penstock.decode.changes import ChangeSet
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader, TableRows

Receipt = bytes
"""What a task tells the driver of what it wrote. Only the destination that made it reads it."""

Behind = Mapping[int, Frontier]
"""Tables that stand elsewhere than the destination as a whole, by their oid in the source."""


@dataclass(frozen=True)
class SchemaChange:
    """What one statement changed in the tables that the pipeline follows.

    ``silent`` are tables, by oid, of whose changes no event is to tell: the filter says so.
    """

    position: Position
    commit_micros: int
    tag: str
    tables: tuple[TableChange, ...]
    silent: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Rows:
    """What tasks wrote of a transaction between two of its schema changes."""

    receipts: tuple[Receipt, ...]


@dataclass(frozen=True)
class Capabilities:
    """What a destination can do; the contract suite asks of it just this."""

    mode: Literal["merge", "append"]
    """merge: holds the current rows; append: holds every change."""
    exactly_once: bool
    """A change is there once, whatever crashed. Otherwise: at least once."""
    remembers: bool
    """It stores its own frontier with the data. Otherwise the change log's reader entry counts."""
    atomic: bool
    """Readers of the destination never see a part of a batch."""
    batch_age: float
    """Seconds between micro-batches unless the pipeline file says otherwise."""
    sends_at_once: bool = False
    """What a task wrote is there before it is committed: it cannot be taken back."""
    tells_by_definitions: bool = False
    """What it writes of a row depends on how the table was defined then. So definitions are kept
    over a restart, also where no table is copied.
    """
    tables_fail_alone: bool = False
    """It remembers ``behind``, so that one table can wait for a person while the others go on."""


class DestinationOptions(BaseModel):
    """Base of each destination's own part of the pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class ChunkReceipt:
    """What a task tells the driver of a chunk. ``content`` is for the destination that made it;
    ``resent`` as a LaneSender has it.
    """

    rows: int
    bytes: int
    content: Receipt = b""
    resent: int = 0


class ChunkWriter(ABC):
    """The executor's side of a copy. Pickled to the executors; opens what it needs."""

    @abstractmethod
    def write(self, rows: ChunkReader) -> ChunkReceipt:
        """Write one chunk. May be called again with the same chunk: then it stands once.

        Raises TableRefused where the destination does not take a row.
        """


class TaskWriter(ABC):
    """The executor's side. Pickled to the executors; opens what it needs when it writes."""

    @abstractmethod
    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        """Write one task's share of a micro-batch. May be called again with the same changes."""


@dataclass(frozen=True)
class LanePart:
    """Some changes of one lane, encoded, in position order; ``first`` is where they begin.

    ``messages`` is how many there are, for statistics alone: it does not reach the sender.
    """

    lane: int
    first: Position
    content: bytes
    messages: int = 0


class Delivered(NamedTuple):
    """What became of all that a sender was given."""

    receipt: Receipt
    resent: int


class LaneSender(ABC):
    """Sends parts of lanes. Those of a lane come in order, and from one sender at a time.

    ``resent`` is how many messages did not arrive at first, and were sent again.
    """

    resent: int = 0

    @abstractmethod
    def send(self, part: LanePart) -> None:
        """Send it, or put it into a bounded buffer: waits where that is full."""

    @abstractmethod
    def finish(self) -> Receipt:
        """Return when all that was given to ``send`` is delivered."""

    @abstractmethod
    def give_up(self) -> None:
        """Something failed: what is not sent yet is not to be sent, as far as possible."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.give_up()


class LanedWriter(TaskWriter):
    """A writer for destinations that take changes in the order in which they are sent.

    Changes of the same lane are sent in position order; lanes know nothing of each other.
    """

    lanes: int

    @abstractmethod
    def encode(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        """One task's share of a micro-batch, lane by lane, in pieces of bounded size."""

    @abstractmethod
    def sender(self) -> LaneSender:
        """Something that sends, on the executor that calls this."""

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        """The whole micro-batch at once, where it has a single task."""
        return self.send(self.encode(changes)).receipt

    def send(self, parts: Iterable[LanePart]) -> Delivered:
        """Return when all of them are delivered."""
        with self.sender() as sender:
            for part in parts:
                sender.send(part)
            return Delivered(sender.finish(), sender.resent)


class Destination(ABC):
    """The driver's side."""

    name: ClassVar[str]
    options_model: ClassVar[type[DestinationOptions]]
    capabilities: Capabilities

    def __init__(self, options: Any, pipeline: str) -> None:
        """``options`` is an instance of ``options_model``; ``pipeline`` the pipeline's name."""
        self.options = options
        self.pipeline = pipeline

    def check(self) -> Sequence[str]:
        """Raise DestinationError if it could not be written to. Creates nothing that stays.

        Returns what works, but not in the way that a person may expect.
        """
        return ()

    @abstractmethod
    def open(self) -> None:
        """Take over: repair what a crash left, fence whoever wrote before."""

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:  # noqa: B027 (most need none)
        """Make room for these tables. Raises DestinationError, before any row is written, where
        what is there does not fit. Called after ``open``, and again when tables are added.
        """

    @abstractmethod
    def committed(self) -> Frontier | None:
        """The frontier of the last commit; None before the first, or where it does not remember."""

    def behind(self) -> Behind:
        """Tables that stand elsewhere than at ``committed()``, as the last commit was told."""
        return {}

    @abstractmethod
    def task_writer(self) -> TaskWriter:
        """A writer for the tasks of the next micro-batch; asked for again for each."""

    def catchup_writer(self, tables: Collection[int]) -> TaskWriter:
        """The same for a batch that brings only these tables (by oid) on, while the batches of
        the others go on. One at a time. Only asked of destinations whose tables fail alone.
        """
        raise NotImplementedError(f"{self.name} has one position for all tables")

    @abstractmethod
    def commit(
        self, receipts: Sequence[Receipt], frontier: Frontier, behind: Behind | None = None
    ) -> None:
        """Make what the receipts stand for durable together with ``frontier`` and ``behind``.

        Only a destination whose tables fail alone is ever given tables that are behind.

        Raises Fenced if a later driver has opened the destination. ``receipts`` may be empty: the
        frontier moved past WAL that held nothing for us.
        """

    # -- schema changes ------------------------------------------------------------------------

    def section_writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        """A writer for the rows of a transaction that stand behind these of its schema changes,
        and before the next. Only asked for while no batch is under way.
        """
        return self.task_writer()

    def commit_sections(
        self,
        sections: Sequence[SchemaChange | Rows],
        frontier: Frontier,
        behind: Behind | None = None,
    ) -> None:
        """As ``commit``, of one transaction: its rows and its schema changes, in their order.

        Raises TableRefused where a table cannot be changed.
        """
        rows = [section for section in sections if isinstance(section, Rows)]
        receipts = [receipt for section in rows for receipt in section.receipts]
        self.commit(receipts, frontier, behind)

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:  # noqa: B027 (most need none)
        """Let a table become what the source has, apart from the stream and whatever it is now: it
        is copied next, so its rows do not matter. ``former`` is what it was at the source before.
        ``prepare`` follows. Raises TableRefused where it cannot.
        """

    # -- copies --------------------------------------------------------------------------------
    # May be called by other threads than the one that commits, also while it does.

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        """Whether a table holds rows that the pipeline did not bring. An append destination does
        not mind.
        """
        return False

    @abstractmethod
    def truncate_table(self, table: TableDefinition) -> None:
        """Empty a table, and forget which chunks of it were written. An append destination keeps
        its history.
        """

    @abstractmethod
    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> ChunkWriter:
        """A writer for the chunks of a table that ``prepare`` has seen.

        With ``again`` they are read under a later snapshot than chunks that were written before: a
        row that moved may be among both, and the one that is written now counts.
        """

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:  # noqa: B027 (most need none)
        """Make chunks durable whose receipts these are, where the writers did not. A receipt of a
        chunk that stands already changes nothing.
        """

    def finish_copy(self, table: TableDefinition) -> None:  # noqa: B027 (most need none)
        """All chunks are written; the table's changes come next. Called again after a crash."""

    def replaying(self, tables: Collection[int]) -> None:  # noqa: B027 (append needs none)
        """From now on the changes of these tables (by oid) are replayed over copied rows: a change
        of a row that is not there puts it there, or removes nothing. Where it does not say all of
        the row, its keys are parked, to be read again.
        """

    def parked_keys(self, table: int) -> Sequence[tuple[str, ...]]:
        """Keys of rows that have to be read again: texts in the order of the table's merge key."""
        return ()

    def settle_parked(self, rows: TableRows, keys: Sequence[tuple[str, ...]]) -> None:
        """Put rows that were read again in place of what stands under the keys, and forget these.
        Of a key that no row has, the row is removed.
        """
        raise NotImplementedError(f"{self.name} parks nothing")

    def complete_table(self, table: TableDefinition) -> None:  # noqa: B027 (most need none)
        """The table is what the source has at one point: add what had to wait for that (indexes,
        constraints). Called again after a crash.
        """

    def drop_table(self, table: TableDefinition) -> None:
        """Remove a table that is followed no longer, with its rows."""
        raise DestinationError(
            f"destination {self.name} cannot drop tables",
            remedy="set source.tables.on_remove to keep",
        )

    def dead_letters(self) -> Mapping[str, int]:
        """How many refused rows of each source table it keeps for a person to look at."""
        return {}

    def forget(self) -> Sequence[str]:
        """Remove what it keeps about the pipeline, but no data; says what was removed.

        Called without ``open``, when the pipeline is destroyed: positions of its slot mean nothing
        from then on.
        """
        return ()

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Let go of what is held. Called once, also after an error."""
