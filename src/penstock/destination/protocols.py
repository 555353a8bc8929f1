"""What only some destinations can do. Each is a base class beside ``Destination``.

The pipeline asks ``isinstance(destination, TakesCopies)`` and acts by the answer: what it
cannot do is refused with a reason, and nothing is left out silently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.destination.contract import (
    ChunkReceipt,
    ChunkWriter,
    Receipt,
    Rows,
    SchemaChange,
    TaskWriter,
)
from penstock.model.source_identity import SourceIdentity
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks
from penstock.source.schema_dump import DumpOptions, SchemaDump, SequenceValue

if TYPE_CHECKING:
    from penstock.metrics.registry import Registry


class TakesCopies(ABC):
    """Rows that are there before the stream are copied chunk by chunk: tasks call
    ``chunk_writer().write(rows)``, the driver ``commit_chunks(receipts)``.

    Called by the thread that copies, also while another one commits.
    """

    @abstractmethod
    def truncate_table(self, table: TableDefinition) -> None:
        """Empty a table, and forget which chunks of it were written. A destination that appends
        keeps its history.
        """

    @abstractmethod
    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> ChunkWriter:
        """A writer for the chunks of a table that ``prepare`` has seen.

        With ``again`` they are read under a later snapshot than chunks that were written before: a
        row that moved may be among both, and the one that is written now counts.
        """

    @abstractmethod
    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        """Make chunks durable whose receipts these are, where the writers did not. A receipt of a
        chunk that stands already changes nothing.
        """


class CountsByItself(ABC):
    """Something of it goes on beside batches, in threads of its own, and is counted there."""

    @abstractmethod
    def count_in(self, registry: Registry) -> None:
        """Count what is done from ``open`` on. The driver calls it before that."""

    @abstractmethod
    def check_beside(self) -> None:
        """Raises what has ended it. The main thread calls it several times a second, also while
        another one commits.
        """


class NamesSource(ABC):
    """What it sends says of which source it is: positions of another one mean nothing beside it."""

    @abstractmethod
    def come_from(self, source: SourceIdentity) -> None:
        """The driver calls it after ``open``, before anything is sent."""


Ticket = Mapping[str, Any]
"""JSON, without secrets: what the driver knows and a worker has to."""


class CopiedByWorkers(TakesCopies):
    """Chunks may also be written by workers: processes of `penstock copy`, on any machine, with a
    pipeline file of their own. Such a process never opens the destination, which would fence the
    driver. The driver commits what they wrote, as it does with that of its own tasks.
    """

    chunks_stand: ClassVar[bool] = False
    """A chunk that was written needs no driver: it counts for the next one, too."""

    @abstractmethod
    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        """For the driver: what ``ticket_writer`` needs. Threads as ``chunk_writer``."""

    @abstractmethod
    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> ChunkWriter:
        """For a worker, of an instance that is not opened: what ``chunk_writer`` is for the driver.
        Raises ConfigError where this machine does not see what the driver sees.
        """


class HoldsTables(ABC):
    """It makes tables like those of the source, and holds their rows. Threads as TakesCopies."""

    @abstractmethod
    def has_foreign_rows(self, table: TableDefinition) -> bool:
        """Whether a table holds rows that the pipeline did not bring."""

    def knows_copy(self, table: int) -> bool:
        """Whether it remembers chunks of a table (by oid) of which some were written: not where the
        table, or all of the database, is another one than then.
        """
        return True

    @abstractmethod
    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        """Let a table become what the source has, apart from the stream and whatever it is now: it
        is copied next, so its rows do not matter. ``former`` is what it was at the source before.
        ``prepare`` follows. Raises TableRefused where it cannot.
        """

    @abstractmethod
    def finish_copy(self, table: TableDefinition) -> None:
        """All chunks are written; the table's changes come next. Called again after a crash."""

    @abstractmethod
    def complete_table(self, table: TableDefinition) -> None:
        """The table is what the source has at one point: add what had to wait for that (indexes,
        constraints). Called again after a crash.
        """

    def complete_together(  # noqa: B027 (most need nothing)
        self, tables: Collection[int], new: Collection[int]
    ) -> None:
        """``tables`` (by oid) stand at one point, and go on together. Those that are ``new`` have
        come to that since the last call: in a run's first one, all. Add what has to wait for two of
        them (a foreign key). Called again after a crash. By a thread of its own: it may take long,
        and other tables are copied and completed meanwhile.
        """

    @abstractmethod
    def drop_table(self, table: TableDefinition) -> None:
        """Remove a table that is followed no longer, with its rows."""

    def let_go(self, table: TableDefinition) -> None:  # noqa: B027 (most need nothing)
        """A table is followed no longer, and stays with its rows. It may come back, and another one
        may have its name by then. Whoever knows tables by their names forgets this one.
        """

    @abstractmethod
    def notes(self, table: int) -> Sequence[str]:
        """What of a table (by oid) the destination could not make, and why: an index, say."""

    def is_outdated(self, table: int, note: str) -> bool:
        """Whether a note, also of an earlier run, is true no longer since ``complete_together``."""
        return False


class TakesReplays(ABC):
    """Changes that were made while a table was copied are replayed over the copied rows.

    Every destination whose mode is merge and that takes copies needs it. Threads as TakesCopies.
    """

    @abstractmethod
    def catchup_writer(self, tables: Collection[int]) -> TaskWriter:
        """A writer for a batch that brings only these tables (by oid) on, while the batches of the
        others go on. One at a time.
        """

    @abstractmethod
    def replaying(self, tables: Collection[int]) -> None:
        """From now on the changes of these tables (by oid) are replayed over copied rows: a change
        of a row that is not there puts it there, or removes nothing. Where it does not say all of
        the row, its keys are parked, to be read again.
        """

    @abstractmethod
    def parked_keys(self, table: int) -> Sequence[tuple[str, ...]]:
        """Keys of rows that have to be read again: texts in the order of the table's merge key."""

    @abstractmethod
    def settle_parked(self, rows: TableRows, keys: Sequence[tuple[str, ...]]) -> None:
        """Put rows that were read again in place of what stands under the keys, and forget these.
        Of a key that no row has, the row is removed.
        """


class TakesPieces(ABC):
    """Large batches come in pieces: what one job wrote it takes while the next is at work.

    ``commit`` follows with the receipts of all pieces, so it need not take any. Called by the
    thread that commits the stream's batches; no piece is taken while another thread commits.
    """

    @property
    @abstractmethod
    def gains_by_pieces(self) -> bool:
        """Whether it would take some of the next batch. For the thread that begins batches."""

    @abstractmethod
    def take_piece(self, receipts: Sequence[Receipt]) -> None:
        """Do with these what can be undone and is invisible until ``commit``. What goes wrong is
        undone, and shows there.
        """

    @abstractmethod
    def undo_pieces(self) -> None:
        """Undo it: the batch is not committed, or something else comes before."""


class FollowsSchema(ABC):
    """It applies schema changes, or tells of them, in their order among the rows.

    Where a destination does not, a table that is changed is refused, unless the pipeline file says
    that this kind of change is to be ignored.
    """

    @abstractmethod
    def section_writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        """A writer for the rows of a transaction that stand behind these of its schema changes,
        and before the next. Only asked for while no batch is under way.
        """

    @abstractmethod
    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        """As ``commit``, of one transaction: its rows and its schema changes, in their order.
        ``prepare`` follows, with the tables as they are behind the changes.

        Raises TableRefused where a table cannot be changed.
        """


class TablesFailAlone:
    """Its watermarks hold tables that are ``behind``, so one that was refused can wait for a person
    while the others go on. It has no methods of its own: ``commit`` keeps the promise.
    """


class KeepsDeadLetters(ABC):
    """It keeps rows that it refused, for a person to look at."""

    @abstractmethod
    def dead_letters(self) -> Mapping[str, int]:
        """How many of each source table. Called without ``open``, too."""


@dataclass(frozen=True)
class Unrestored:
    """What of the source's schema is not at the destination: ``title`` is what to call it, with
    the statement that would make it, and why it was not. ``is_older``: one of the pipeline's is
    there, as the source had it before.
    """

    title: str
    statement: str
    why: str
    is_older: bool = False

    def __str__(self) -> str:
        return f"{self.title}: {self.why}"


class HoldsSchema(ABC):
    """It takes the source's whole schema, if its options say so: what tables need before their
    rows, the rest after them. Threads as TakesCopies.
    """

    @property
    @abstractmethod
    def schema_options(self) -> DumpOptions | None:
        """What it wants of the source's schema; None where tables alone are made."""

    @abstractmethod
    def has_schema(self) -> bool:
        """Whether ``restore_before`` was done, now or in an earlier run."""

    @abstractmethod
    def restore_before(self, dump: SchemaDump, tables: Sequence[TableDefinition]) -> None:
        """Make what comes before the rows, in one transaction with the note that it is there.
        ``tables`` are those that are copied under the dump's snapshot. Does nothing where it was
        done before. ``prepare`` follows.
        """

    @abstractmethod
    def follow_schema(self, dump: SchemaDump) -> bool:
        """The source's schema as it is by now, after ``restore_before``: make what has changed, as
        far as that is not told in the stream, and list what cannot be made. Whether something was
        made.
        """

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether ``restore_after`` was done."""

    @abstractmethod
    def restore_after(self, *, followed: bool) -> None:
        """All tables hold their rows: make the rest. ``followed``: changes come after them. Called
        again after a crash.
        """

    @abstractmethod
    def set_sequences(self, values: Sequence[SequenceValue]) -> None:
        """Let sequences stand where the source's do, or further on."""

    @abstractmethod
    def unrestored(self) -> Sequence[Unrestored]:
        """What could not be made so far."""


SummedAs = Literal["text", "flag", "bytes", "beginning", "days", "instant", "clock", "presence"]
"""How a value goes into a sum that two engines are to agree on. text: as it is written. flag: 0 or
1. bytes: as hexadecimal digits. beginning: how many bytes, and the first of them as digits. days,
instant, clock: days or microseconds since 1970 or midnight; ``infinity`` and ``-infinity`` by these
names. presence: whether there is one.
"""

BEGINNING = 32_000
"""How many bytes that are."""

_SUMMED: Mapping[str, SummedAs] = {
    "bool": "flag",
    "bytea": "bytes",
    "date": "days",
    "timestamp": "instant",
    "timestamptz": "instant",
    "time": "clock",
    # Engines write floating-point numbers in forms of their own.
    "float4": "presence",
    "float8": "presence",
}


def summed_as(plain: str) -> SummedAs:
    """Of a column whose type comes down to ``plain`` (plain_type.py)."""
    return "presence" if plain.endswith("[]") else _SUMMED.get(plain, "text")


@dataclass(frozen=True)
class TableSum:
    """How many rows a table has, and the sum over all rows of the first 60 bits of the row's md5.
    That is the md5 of the md5s of its columns, ``-`` for null, in the order of the table.
    """

    rows: int
    checksum: int


class Verifiable(ABC):
    """It says by the engine's own SQL what its tables hold. Of an instance that is not opened."""

    def summed_as(self, plain: str) -> SummedAs:
        """How values of a type go into its sums."""
        return summed_as(plain)

    @abstractmethod
    def pinned(self) -> AbstractContextManager[None]:
        """What ``table_sum`` says inside is of one snapshot, which is taken now."""

    @abstractmethod
    def table_sum(self, table: TableDefinition) -> TableSum | None:
        """None where there is no such table, or it has other columns."""
