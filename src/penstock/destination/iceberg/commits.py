"""What one driver of a pipeline commits to its tables, and how it knows its own commits again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from pyiceberg.table import Table

from penstock.destination.families.ledger import fenced
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.destination.iceberg.catalog import Identifier, TableCatalog
from penstock.destination.iceberg.snapshots import Change, commit
from penstock.model.errors import DestinationError, Fenced
from penstock.model.lsn import Frontier, format_lsn


@dataclass(frozen=True)
class TableState:
    """What a table's property says of a pipeline. ``loaded`` and ``shape`` tell which chunk was
    loaded last, and which schema change was followed last; ``oid`` is the table's at the source.
    """

    incarnation: str = ""
    driver: int = 0
    commit_lsn: int = 0
    end: int | None = None
    lacking: int = 0
    commit: int = 0
    loaded: int = 0
    shape: str = ""
    oid: int = 0

    def marked(self, at: Mark) -> TableState:
        frontier = at.frontier
        return replace(
            self,
            commit_lsn=frontier.commit_lsn,
            end=frontier.end_lsn,
            lacking=at.lacking,
            commit=at.commit,
        )

    @property
    def mark(self) -> Mark | None:
        if self.end is None:
            return None
        return Mark(Frontier(self.commit_lsn, self.end), self.lacking, self.commit)


def digest(*texts: str) -> str:
    """A short name for texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


class IcebergCommits:
    """Loads tables and commits to them, with the state of the pipeline in a property of each.

    Snapshot and property are one commit, which the catalogue takes only if it follows on the
    snapshot that was seen: of two drivers the later one fails, and finds the number of the other.
    The snapshot's summary tells the position, too: for people, and for who reads an old snapshot.
    """

    def __init__(self, catalog: TableCatalog, pipeline: str) -> None:
        self.tables = catalog
        self._pipeline = pipeline
        self._property = f"penstock.{pipeline}"
        self.driver = 0
        self.incarnation = ""
        """Tells this pipeline from one of the same name that was destroyed: positions of another
        slot mean nothing to it.
        """

    def find(self, identifier: Identifier) -> Table | None:
        """The table as it is now. Raises Fenced where a later driver wrote to it."""
        table = self.tables.find(identifier)
        if table is not None and self.state(table).driver > self.driver:
            raise fenced("iceberg", self._pipeline)
        return table

    def table(self, identifier: Identifier) -> Table:
        """The same of a table that is there."""
        table = self.find(identifier)
        if table is None:
            raise self.gone(identifier)
        return table

    def own(self, identifier: Identifier, oid: int) -> Table | None:
        """The table of that name; None without one, or where it is another one: of the pipeline,
        or of somebody else.
        """
        table = self.tables.find(identifier)
        if table is None or not self.is_signed(table) or self.state(table).oid not in (0, oid):
            return None
        return table

    def is_signed(self, table: Table) -> bool:
        """Whether the table is the pipeline's: a driver wrote its number into it."""
        return self.state(table).driver > 0

    def is_there(self, identifier: Identifier, oid: int) -> bool:
        """Whether the table is there, and nobody could take another one for it."""
        table = self.own(identifier, oid)
        return table is not None and self.state(table).oid == oid

    def sign(self, table: Table, oid: int) -> None:
        """Make a snapshot that tells which table it is, and the driver's number: what an earlier
        driver is about to commit does not follow on it.
        """
        self.commit(table, Change(), replace(self.state(table), oid=oid))

    def gone(self, identifier: Identifier) -> DestinationError:
        name = ".".join(identifier)
        return DestinationError(
            f"destination iceberg: the catalogue knows no table {name} any more",
            remedy=f"run `penstock tables resync` for {name}, which copies it anew",
        )

    def state(self, table: Table) -> TableState:
        """The pipeline's, as the table has it."""
        text = table.properties.get(self._property)
        found = TableState(**json.loads(text)) if text else TableState()
        if found.incarnation == self.incarnation:
            return found
        return TableState(self.incarnation)

    def commit(self, table: Table, change: Change, state: TableState) -> None:
        """One commit; ``state`` is what the table's state becomes."""
        now = replace(state, incarnation=self.incarnation, driver=self.driver)
        summary = {"penstock.pipeline": self._pipeline, "penstock.driver": str(self.driver)}
        if now.end is not None:
            summary["penstock.commit_lsn"] = format_lsn(now.commit_lsn)
            summary["penstock.end_lsn"] = format_lsn(now.end)
        commit(table, change, summary, self.properties(now))

    def properties(self, state: TableState) -> Mapping[str, str]:
        return {self._property: json.dumps(asdict(state))}

    @contextmanager
    def explained(self, identifier: Identifier) -> Iterator[None]:
        """As the catalogue's; a driver that took over meanwhile is told by its number."""
        try:
            with self.tables.explained(".".join(identifier)):
                yield
        except Fenced:
            raise
        except DestinationError:
            self.find(identifier)
            raise
