"""What can go wrong, as a tree. Each error carries what a person needs to act on it.

PenstockError
├── ConfigError            the pipeline file is wrong
├── CheckFailed            a preflight check failed
├── SourceError            the source database refuses, or is not what it was
│   ├── SourceUnavailable  connection lost or refused: worth another try
│   ├── PipelineBusy       another process is at it, and lives
│   ├── SnapshotGone       the snapshot of a copy ended: a new one is taken
│   ├── TableRewritten     blocks mean something else now: the table's copy starts again
│   ├── RowsRefused        it does not give rows of a table: what it says may quote one
│   ├── SlotError          slot missing, invalidated, moved or busy: never worth a loop
│   └── IdentityChanged    another source than positions are of, or one that went back
├── LogError               the change log cannot be trusted or written
│   ├── LogUnavailable     its storage has no room, or no answer: worth another try
│   ├── SegmentGone        what was listed is there no longer: the log is listed anew
│   ├── CorruptSegment     torn, truncated or altered
│   └── Fenced             another writer or driver has taken over
├── DecodeError            bytes that are not what the protocol allows
├── SparkLost              Spark's JVM is gone: only a new start helps
├── StoreError             the store of table states and schemas refuses
│   ├── StoreUnavailable   connection lost or refused: worth another try
│   └── UnknownTable       the pipeline has no table of that name
└── DestinationError       the destination refused
    ├── UnknownLetter      it keeps no refused row of that id
    ├── UnknownSubscription  it has no subscription of that id
    ├── DestinationUnavailable  it did not answer: worth another try
    ├── BatchAgain         it asks for the same batch once more, and knows why
    └── TableRefused       it refused a row of one table: the others can go on
        └── TableChanged   its rows came in another layout, and nothing had told of it
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class PenstockError(Exception):
    """An error with a message for people: what happened, where and why; ``remedy``: what to do."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (rebuild, (type(self), vars(self)))


def rebuild(kind: type[PenstockError], fields: dict[str, Any]) -> PenstockError:
    """An error of this kind with these fields, however its constructor is called."""
    error = kind.__new__(kind, fields["message"])
    vars(error).update(fields)
    return error


class ConfigError(PenstockError):
    """The pipeline file is wrong."""


class CheckFailed(PenstockError):
    """A preflight check failed; nothing was created."""


class SourceError(PenstockError):
    """The source database refuses, or is not what it was."""


class SourceUnavailable(SourceError):
    """The connection was lost or refused; another try may succeed."""


class PipelineBusy(SourceError):
    """Another process has the pipeline's lock, and lives."""


class SnapshotGone(SourceError):
    """The snapshot that a copy reads under has ended; a new one can be taken."""


class TableRewritten(SourceError):
    """A table's file is another one than when its copy was planned (TRUNCATE, VACUUM FULL, a
    rewrite), or its columns are: its copy starts again. ``table`` is its oid.
    """

    def __init__(self, message: str, *, remedy: str = "", table: int = 0) -> None:
        super().__init__(message, remedy=remedy)
        self.table = table


class RowsRefused(SourceError):
    """The source did not give rows of a table (by oid), with this ``sqlstate``: what it said may
    show values of them.
    """

    def __init__(
        self, message: str, *, remedy: str = "", sqlstate: str = "", table: int = 0
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.sqlstate = sqlstate
        self.table = table

    @property
    def is_of_rights(self) -> bool:
        return self.sqlstate == "42501"


class SlotError(SourceError):
    """The slot is missing, invalidated, moved or held by somebody else."""


class IdentityChanged(SourceError):
    """The source is another one than log and destination got what they hold from, or went back."""


class LogError(PenstockError):
    """The change log cannot be trusted or written."""


class LogUnavailable(LogError):
    """The storage of the change log did not answer, or is full; another try may succeed."""


class SegmentGone(LogError):
    """A segment that was listed a moment ago is there no longer: a new writer has swept what its
    predecessor left unfinished, or all who were to read it hold it. The log as it is now says what
    counts. ``segment`` is its name.
    """

    def __init__(self, message: str, *, remedy: str = "", segment: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.segment = segment


class CorruptSegment(LogError):
    """A segment file is torn, truncated or altered."""


class Fenced(LogError):
    """Another writer or driver of the same pipeline has taken over."""


class DecodeError(PenstockError):
    """Bytes that are not what the protocol or the type allows."""


class SparkLost(PenstockError):
    """The JVM that Spark runs in has ended, and every session in it."""


class StoreError(PenstockError):
    """The store of table states and schemas refuses, or was asked for what cannot be."""


class StoreUnavailable(StoreError):
    """The store did not answer; another try may succeed."""


class UnknownTable(StoreError):
    """The pipeline has no table of the name that was given."""


class DestinationError(PenstockError):
    """The destination refused."""


class UnknownLetter(DestinationError):
    """The destination keeps no refused row of the id that was given."""


class UnknownSubscription(DestinationError):
    """The destination has no subscription of the id that was given."""


class DestinationUnavailable(DestinationError):
    """The destination did not answer; another try may succeed."""


class BatchAgain(DestinationError):
    """The destination needs the same batch again, at once: what was staged is gone, or it will
    look closer this time. Nothing of the batch was committed.
    """


class TableRefused(DestinationError):
    """The destination refused something of one table. ``table`` is its oid in the source.

    ``may_pass``: not a row is at fault but, say, a right that the role lacks.
    """

    def __init__(
        self, message: str, *, remedy: str = "", table: int = 0, may_pass: bool = False
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.table = table
        self.may_pass = may_pass


@contextmanager
def refused_alone(table: int) -> Iterator[None]:
    """What a destination refuses inside of the block is refused of this table, so that it alone
    waits for a person.
    """
    try:
        yield
    except (DestinationUnavailable, BatchAgain, TableRefused):
        raise
    except DestinationError as error:
        remedy = f"{error.remedy.rstrip('.')}; then run `penstock tables retry` for the table"
        raise TableRefused(error.message, remedy=remedy, table=table) from error


@contextmanager
def unreadable_alone(table: int, name: str) -> Iterator[None]:
    """Rows of a table that cannot be made out inside of the block are refused of this table: the
    same change would come with every new try, and only a copy passes it.
    """
    try:
        yield
    except DecodeError as error:
        raise TableRefused(
            error.message,
            remedy=f"{error.remedy or 'mend the table'}; then run `penstock tables resync` for "
            f"{name}, which copies it anew",
            table=table,
        ) from error


class TableChanged(TableRefused):
    """Rows of a table came in another layout than it had, in a transaction that was committed at
    ``commit_lsn``, and nothing had told of it.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        table: int = 0,
        may_pass: bool = False,
        commit_lsn: int = 0,
    ) -> None:
        super().__init__(message, remedy=remedy, table=table, may_pass=may_pass)
        self.commit_lsn = commit_lsn
