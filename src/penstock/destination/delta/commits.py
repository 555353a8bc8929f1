"""One commit to a Delta table, with all that a pipeline has to know of it in its transaction."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.destination.delta.delta_rs import delta_rs
from penstock.destination.delta.places import DeltaPlace, is_away, told
from penstock.destination.families import durable
from penstock.destination.families.ledger import fenced
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable
from penstock.model.lsn import Frontier

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

# What delta-rs says, beside CommitFailedError, of a table that another one makes at the same time.
_MADE_AT_ONCE = ("Invalid table version", "already exists at that location")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def number_of(*texts: str) -> int:
    """A number for texts, as large as a transaction's version may be."""
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _code(error: Exception) -> int | None:
    """What the operating system said. delta-rs has it in its text alone."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _OS_ERROR.search(str(error))
    return int(found[1]) if found else None


def _outrun(folder: DeltaPlace, error: Exception) -> BatchAgain:
    return BatchAgain(f"destination delta: another writer was faster at {folder}: {told(error)}")


_WHAT = ("oid", "end", "commit_lsn", "lacking", "commit", "loaded", "shape")


class PipelineCommits:
    """What one driver of a pipeline writes into the transactions of its tables, and reads there.

    A Delta table keeps a version for each application that writes to it. Of a pipeline these are
    the driver's number, the oid of the table at the source, how far it has come, which chunk was
    loaded last, and which schema change it followed last. Nothing is committed over a version of
    the table that was not seen: of two drivers the later one fails, and finds the number of the
    other.
    """

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self.driver = 0
        self.incarnation = ""
        """Tells this pipeline from one of the same name that was destroyed: positions of another
        slot mean nothing to it.
        """

    def table(self, folder: DeltaPlace) -> DeltaTable:
        """The table as it is now. Raises Fenced where a later driver wrote to it."""
        return self.expect_current(folder.table())

    def expect_current(self, table: DeltaTable) -> DeltaTable:
        """The table, unless a later driver wrote to it: raises Fenced."""
        if (self.read(table, "driver") or 0) > self.driver:
            raise fenced("delta", self._pipeline)
        return table

    def find(self, folder: DeltaPlace, oid: int) -> DeltaTable | None:
        """The table in a folder; None without one, or where it is another one: of the pipeline, or
        of somebody else.
        """
        table = folder.found()
        if table is None:
            return None
        known = self.read(table, "oid")
        is_own = self.is_signed(table) if known is None else known == oid
        return table if is_own else None

    def is_signed(self, table: DeltaTable) -> bool:
        """Whether the table is the pipeline's: a driver wrote its number into it."""
        return self.read(table, "driver") is not None

    def has_another(self, folder: DeltaPlace, oid: int) -> bool:
        """Whether another table is in the folder."""
        return folder.found() is not None and self.find(folder, oid) is None

    def is_there(self, folder: DeltaPlace, oid: int) -> bool:
        """Whether the table is in the folder, and nobody could take another one for it."""
        table = self.find(folder, oid)
        return table is not None and self.read(table, "oid") == oid

    def sign(self, table: DeltaTable, oid: int) -> None:
        """Write into a table which one it is, and the driver's number: what an earlier driver is
        about to commit there fails from now on.
        """
        table.create_write_transaction(
            [],
            mode="append",
            schema=table.schema(),
            commit_properties=self.properties({"oid": oid}),
        )

    def read(self, table: DeltaTable, what: str) -> int | None:
        return table.transaction_version(self._app(what))

    def all_of(self, table: DeltaTable) -> dict[str, int]:
        """What a table says of itself, for one that takes its place."""
        found = {what: self.read(table, what) for what in _WHAT}
        return {what: at for what, at in found.items() if at is not None}

    def held(self, table: DeltaTable) -> Mark | None:
        end = self.read(table, "end")
        if end is None:
            return None
        commit_lsn, lacking, commit = (
            self.read(table, what) or 0 for what in ("commit_lsn", "lacking", "commit")
        )
        return Mark(Frontier(commit_lsn, end), lacking, commit)

    def marks(self, at: Mark) -> dict[str, int]:
        return {
            "end": at.frontier.end_lsn,
            "commit_lsn": at.frontier.commit_lsn,
            "lacking": at.lacking,
            "commit": at.commit,
        }

    def properties(self, versions: Mapping[str, int]) -> CommitProperties:
        module = delta_rs()
        found = {"driver": self.driver, **versions}
        transactions = [module.Transaction(self._app(what), at) for what, at in found.items()]
        properties: CommitProperties = module.CommitProperties(
            app_transactions=transactions, max_commit_retries=0
        )
        return properties

    @contextmanager
    def explained(self, folder: DeltaPlace) -> Iterator[None]:
        """Turns what delta-rs says into errors that a person or the pipeline can act on."""
        errors = importlib.import_module("deltalake.exceptions")
        try:
            yield
        except errors.CommitFailedError as error:
            self.table(folder)  # a driver that took over is told by its number
            raise _outrun(folder, error) from error
        except errors.TableNotFoundError as error:
            raise DestinationError(
                f"destination delta: there is no Delta table in {folder} any more: {told(error)}",
                remedy="put it back, or run `penstock tables resync` for the table, which makes "
                "and copies it anew",
            ) from error
        except (errors.DeltaError, OSError) as error:
            if any(sign in str(error) for sign in _MADE_AT_ONCE):
                raise _outrun(folder, error) from error
            if _code(error) in durable.PASSING or is_away(error):
                raise DestinationUnavailable(
                    f"destination delta: {folder}: {told(error)}",
                    remedy="see that there is room, and that the storage answers",
                ) from error
            raise DestinationError(
                f"destination delta: {folder}: {told(error)}", remedy="see what delta-rs says"
            ) from error

    def _app(self, what: str) -> str:
        return f"penstock/{self._pipeline}/{self.incarnation}/{what}"
