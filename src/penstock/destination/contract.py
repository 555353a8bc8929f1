"""What every destination promises. penstock.testing holds each of them to it.

Written after Spark's own writers: executors write and return receipts, the driver commits them.

1. ``open()`` takes the destination over: it repairs what a crash left and fences earlier drivers.
   ``prepare(definitions)`` then makes room for the tables that are to come.
2. For each micro-batch, tasks on executors call ``writer().write(changes)``, in parallel and
   possibly twice (a task that fails is tried again); each returns a receipt. Nothing that a task
   wrote may be visible as delivered before its receipt is committed. The tasks of the next batch
   may be at work while a batch is being committed; those of the one after that are not.
   Queues cannot take back what was sent: their writers are laned. Changes are encoded by tasks as
   above, then brought together lane by lane, and each lane is sent in order, by one task. Where
   that costs more than it saves (``in_one_task``) one task has the whole micro-batch.
3. The driver calls ``commit(receipts, watermarks)`` with one receipt of each task, in position
   order. When it returns, changes and watermarks are durable, together. A batch that is replayed
   after a crash between the two leaves no trace where ``exactly_once`` is claimed.

Rows that are there before the stream, schema changes, tables that fail alone and dead letters are
protocols of their own (protocols.py). The driver asks for a protocol, never for a destination.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks

if TYPE_CHECKING:
    # Arrow and NumPy take most of a second to load, and every command reads a pipeline file.
    import pyarrow as pa

    from penstock.decode.changes import ChangeSet
    from penstock.model.table_rows import ChunkReader

Receipt = bytes
"""What a task tells the driver of what it wrote. Only the destination that made it reads it."""


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
    """merge: it holds the current rows, and gets their changes in order.
    append: it holds every change.
    """
    exactly_once: bool
    """A change is there once, whatever crashed. Otherwise: at least once."""
    remembers: bool
    """It stores its watermarks with the data. Otherwise the change log's reader entry counts."""
    atomic: bool
    """Readers of the destination never see a part of a batch."""
    batch_age: float
    """Seconds between micro-batches unless the pipeline file says otherwise."""
    sends_at_once: bool = False
    """What a task wrote is there before it is committed: it cannot be taken back."""
    older_loses: bool = False
    """Of two writes of a row the one of an older change loses, whichever comes first."""
    tells_by_definitions: bool = False
    """What it writes of a row depends on how the table was defined then. So definitions are kept
    over a restart, also where no table is copied.
    """

    @property
    def merges(self) -> bool:
        """Whether a table takes no part in the stream until its rows are copied."""
        return self.mode == "merge"


class DestinationOptions(BaseModel):
    """Base of each destination's own part of the pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class ChunkReceipt:
    """What a task tells the driver of a chunk. ``content`` is for the destination that made it;
    ``resent`` and ``unroutable`` as a LaneSender has them.
    """

    rows: int
    bytes: int
    content: Receipt = b""
    resent: int = 0
    unroutable: int = 0


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

    ``content`` is packed where another process sends it. ``messages`` is how many there are, for
    statistics alone: it does not reach the sender.
    """

    lane: int
    first: Position
    content: bytes | pa.RecordBatch
    messages: int = 0

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        content = self.content
        return len(content) if isinstance(content, bytes) else int(content.nbytes)


class SentLanes(NamedTuple):
    """What became of all that a sender was given."""

    receipt: Receipt
    resent: int
    unroutable: int


class LaneSender(ABC):
    """Sends parts of lanes. Those of a lane come in order, and from one sender at a time.

    ``resent`` is how many messages did not arrive at first, and were sent again; ``unroutable``
    how many the queue took and had nobody to give to.
    """

    resent: int = 0
    unroutable: int = 0

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
    in_one_task: bool = False
    """One task has a whole micro-batch: to bring lanes together would cost more than a second task
    saves.
    """
    most_changes: int | None = None
    """How many changes it wants at a time, where fewer than a task reads."""

    @abstractmethod
    def encode(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        """One task's share of a micro-batch, lane by lane, in pieces of bounded size."""

    def encode_here(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        """As ``encode``, for a whole micro-batch that this process sends, too."""
        return self.encode(changes)

    @abstractmethod
    def sender(self) -> LaneSender:
        """Something that sends, on the executor that calls this."""

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        """The whole micro-batch at once, where it has a single task."""
        return self.send(self.encode_here(changes)).receipt

    def send(self, parts: Iterable[LanePart]) -> SentLanes:
        """Return when all of them are delivered."""
        with self.sender() as sender:
            for part in parts:
                sender.send(part)
            return SentLanes(sender.finish(), sender.resent, sender.unroutable)


class Destination(ABC):
    """The driver's side: what every destination has. ``protocols.py`` has what only some have."""

    name: ClassVar[str]
    options_model: ClassVar[type[DestinationOptions]]
    capabilities: Capabilities
    uses_stdout: ClassVar[bool] = False
    """Standard output is where it delivers, so nothing else may be written there."""
    failpoints: ClassVar[tuple[str, ...]] = ()
    """Places of its own at which tests make a process die (penstock.failpoints): ``name.place``,
    or ``name.copy_place`` where only copies pass it, ``name.schema_place`` where whole schemas do.
    """

    def __init__(self, options: Any, pipeline: str) -> None:
        """``options`` is an instance of ``options_model``. ``pipeline`` is the name under which all
        that belongs to this delivery is kept: the pipeline's, or of several destinations
        ``pipeline.destination``; at most 40 of a-z, 0-9 and _, and perhaps a dot.
        """
        self.options = options
        self.pipeline = pipeline

    def check(self) -> Sequence[str]:
        """Raise DestinationError if it could not be written to. Creates nothing that stays.

        Returns what works, but not in the way that a person may expect. Also called now and then
        while a pipeline runs, of a second instance that is not opened.
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
    def writer(self) -> TaskWriter:
        """A writer for the tasks of the next micro-batch; asked for again for each."""

    @abstractmethod
    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        """Make what the receipts stand for durable together with the watermarks.

        Only a destination whose tables fail alone is ever given tables that are behind.

        Raises Fenced if a later driver has opened the destination. ``receipts`` may be empty: the
        frontier moved past WAL that held nothing for us.
        """

    @abstractmethod
    def committed(self) -> Watermarks | None:
        """Those of the last commit; None before the first, or where it does not remember."""

    def forget(self) -> Sequence[str]:
        """Remove what it keeps about the pipeline, but no data; says what was removed.

        Called without ``open``, when the pipeline is destroyed: positions of its slot mean nothing
        from then on.
        """
        return ()

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Let go of what is held. Called once, also after an error."""
