"""The ledger of a pipeline in BigQuery, and what lets a script commit at most once."""

# ruff: noqa: S608 (names and values are quoted by the dialect)

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.destination.bigquery.dialect import BigQueryDialect, relation_of
from penstock.destination.bigquery.session import BigQuerySession
from penstock.destination.families.ledger import fenced
from penstock.destination.families.warehouse.ledger import DRIVER, SCHEMA, WarehouseLedger, pieces
from penstock.model.errors import BatchAgain

# Notes beyond this size go by way of a file: a script has a megabyte at most.
_WRITTEN_OUT = 100_000
_NOTES = pa.schema({"name": pa.string(), "piece": pa.int64(), "note": pa.string()})


class BigQueryLedger(WarehouseLedger):
    """The driver's note is ``number/turn``. Every script counts the turn up from the one that the
    driver knows, or ends. So a script that nobody waits for any longer, because its answer was
    lost, and the one that is sent in its place do not both commit.

    ``put`` writes a file into the stage, for this transaction.
    """

    _session: BigQuerySession

    def __init__(
        self,
        session: BigQuerySession,
        dialect: BigQueryDialect,
        pipeline: str,
        put: Callable[[pa.Table], str],
    ) -> None:
        # shop.warehouse is no name of a table, and no pipeline has a dash.
        super().__init__(session, dialect, pipeline.replace(".", "-"))
        self._put_file = put

    def _take_over(self) -> int:
        """The table is made with a driver in it: of two that take over at once one has to find that
        its own number is not there any more.
        """
        self._forget_known()
        dialect, session = self._dialect, self._session
        session.run(dialect.create_schema(SCHEMA))
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self.table} (name STRING, piece INT64, note STRING)"
            f" AS SELECT {dialect.literal(DRIVER)}, 0, '0/0'"
        )
        before = self._driver_note()
        driver = int(before.partition("/")[0]) + 1
        with session.transaction():
            self._turn(before, f"{driver}/0", self._outrun)
        self._known, self._is_driver = self._all(), True
        return driver

    def _fence(self, driver: int) -> None:
        if self._known is None:
            self._known = self._all()
        number, _, turn = self._known[DRIVER].partition("/")
        if int(number) != driver:
            raise fenced(self._dialect.name, self._pipeline)
        after = f"{driver}/{int(turn) + 1}"
        self._turn(self._known[DRIVER], after, lambda found: self._refused(driver))
        self._known = {**self._known, DRIVER: after}
        self._fenced_in = self._session.transactions

    def _turn(self, before: str, after: str, otherwise: Callable[[int], Exception]) -> None:
        literal = self._dialect.literal
        self._session.expect(
            f"UPDATE {self.table} SET note = {literal(after)} WHERE name = {literal(DRIVER)}"
            f" AND note = {literal(before)}",
            1,
            otherwise,
        )

    def _refused(self, driver: int) -> Exception:
        if not self.is_current(driver):
            return fenced(self._dialect.name, self._pipeline)
        return BatchAgain("destination bigquery: a script whose answer was lost has committed")

    def _outrun(self, found: int) -> Exception:
        return BatchAgain("destination bigquery: another driver takes over at the same time")

    def _driver(self) -> int:
        return int(self._driver_note().partition("/")[0])

    def _driver_note(self) -> str:
        ((note,),) = self._session.rows(
            f"SELECT note FROM {self.table} WHERE name = {self._dialect.literal(DRIVER)}"
        )
        return str(note)

    def _put(self, notes: Mapping[str, str | None]) -> None:
        if sum(len(name) + len(note or "") for name, note in notes.items()) < _WRITTEN_OUT:
            super()._put(notes)
            return
        rows = [
            {"name": name, "piece": number, "note": piece}
            for name, note in notes.items()
            for number, piece in enumerate([None] if note is None else pieces(note))
        ]
        file = self._put_file(pa.Table.from_pylist(rows, schema=_NOTES))
        relation = relation_of(file)
        self._session.using(relation, file)
        self._session.run(
            f"DELETE FROM {self.table} WHERE name IN (SELECT r.name FROM {relation} r)"
        )
        self._session.run(
            f"INSERT INTO {self.table} (name, piece, note) SELECT r.name, r.piece, r.note"
            f" FROM {relation} r WHERE r.note IS NOT NULL"
        )
        self._remember(notes)
