"""What every destination promises. tests/contract runs one suite against all of them.

Written after Spark's own writers: executors write and return receipts, the driver commits them.

1. ``open()`` takes the destination over: it repairs what a crash left and fences earlier drivers.
   ``prepare(definitions)`` then makes room for the tables that are to come.
2. For each micro-batch, tasks on executors call ``task_writer().write(changes)``, in parallel and
   possibly twice (a task that fails is tried again); each returns a receipt. Nothing that a task
   wrote may be visible as delivered before its receipt is committed. The tasks of the next batch
   may be at work while a batch is being committed; those of the one after that are not.
3. The driver calls ``commit(receipts, frontier)`` with one receipt of each task, in position order.
   When it returns, changes and frontier are durable, together. A batch that is replayed after a
   crash between the two leaves no trace where ``exactly_once`` is claimed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from penstock.decode.changes import ChangeSet
from penstock.lsn import Frontier
from penstock.table_definition import TableDefinition
from penstock.table_schema import TableSchema

Receipt = bytes
"""What a task tells the driver of what it wrote. Only the destination that made it reads it."""

Behind = Mapping[int, Frontier]
"""Tables that stand elsewhere than the destination as a whole, by their oid in the source."""


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
    tables_fail_alone: bool = False
    """It remembers ``behind``, so that one table can wait for a person while the others go on."""


class DestinationOptions(BaseModel):
    """Base of each destination's own part of the pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class TableRows:
    """Rows of one table that were copied, not streamed: one text column a table column."""

    table: TableSchema
    columns: tuple[pa.Array, ...]
    count: int
    """How many rows: a table without columns has rows, too."""
    snapshot: Frontier
    """The point at which they were read. Later changes of the same rows stand after it."""

    def __len__(self) -> int:
        return self.count


class TaskWriter(ABC):
    """The executor's side. Pickled to the executors; opens what it needs when it writes."""

    @abstractmethod
    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        """Write one task's share of a micro-batch. May be called again with the same changes."""


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

    @abstractmethod
    def commit(
        self, receipts: Sequence[Receipt], frontier: Frontier, behind: Behind | None = None
    ) -> None:
        """Make what the receipts stand for durable together with ``frontier`` and ``behind``.

        Only a destination whose tables fail alone is ever given tables that are behind.

        Raises Fenced if a later driver has opened the destination. ``receipts`` may be empty: the
        frontier moved past WAL that held nothing for us.
        """

    @abstractmethod
    def truncate_table(self, table: TableSchema) -> None:
        """Empty a table before it is copied. An append destination keeps its history."""

    @abstractmethod
    def write_table_rows(self, rows: TableRows, chunk: str) -> None:
        """Store copied rows durably. The same ``chunk`` of a table written twice stands once."""

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
