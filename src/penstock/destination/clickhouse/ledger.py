"""The notes of pipelines in a table of their own, and the number of the driver that may write."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

import pyarrow as pa

from penstock.destination.clickhouse.client import GONE, THROWN, ClickHouseClient, Refused
from penstock.destination.clickhouse.names import literal, quoted
from penstock.destination.families.ledger import Ledger, fenced, once_alone
from penstock.model.errors import BatchAgain

# One INSERT of some rows is seen whole or not at all. Of two texts of a name the one of the later
# driver counts, then the later one.
_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  pipeline String, name String, driver UInt64, number UInt64, text String, gone UInt8,
  version UInt128 DEFAULT bitShiftLeft(toUInt128(driver), 64) + toUInt128(number)
) ENGINE = ReplacingMergeTree(version, gone) ORDER BY (pipeline, name)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
"""
_FENCE = "penstock: another driver"
_DRIVER = "driver/"


class ClickHouseLedger(Ledger):
    """A driver's number is the time at which it began, in microseconds, or one above the last: so
    that none comes twice, also where the ledger was forgotten between.
    """

    def __init__(self, client: ClickHouseClient, pipeline: str) -> None:
        self._client = client
        self._pipeline = pipeline
        self._number = 0

    @property
    def table(self) -> str:
        return f"{quoted(self._client.options.ledger_database)}.`ledger`"

    def take_over(self) -> int:
        database = quoted(self._client.options.ledger_database)
        self._client.run(f"CREATE DATABASE IF NOT EXISTS {database}", doing="making the ledger")
        sql = _TABLE.format(table=self.table)
        self._client.run(sql, doing="making the ledger")
        return once_alone(self._take_over)

    def _take_over(self) -> int:
        drivers = self._drivers()
        number = max([time.time_ns() // 1000, *(driver + 1 for driver in drivers)])
        mine = f"{_DRIVER}{number}/{uuid.uuid4().hex}"
        self._insert(number, {mine: ""}, fence="")
        # Whoever sees another one of the same number, or of a later one, lets it be.
        if max(self._drivers()) != number or [*self.read(f"{_DRIVER}{number}/")] != [mine]:
            raise BatchAgain(
                "destination clickhouse: another driver takes over at the same time",
                remedy="none: it is tried again",
            )
        before = [name for name in self.read(_DRIVER) if name != mine]
        if before:
            self._insert(number, dict.fromkeys(before), fence="")
        return number

    def read(self, prefix: str = "") -> dict[str, str]:
        wanted = f"pipeline = {literal(self._pipeline)} AND startsWith(name, {literal(prefix)})"
        sql = f"SELECT name, text FROM {self.table} FINAL WHERE {wanted}"  # noqa: S608
        try:
            found = self._client.read(sql, doing="reading the ledger")
        except Refused as error:
            if error.code in GONE:
                return {}
            raise
        notes = zip(found["name"].to_pylist(), found["text"].to_pylist(), strict=True)
        return {name: text for name, text in notes if prefix or not name.startswith(_DRIVER)}

    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        if not notes:
            if max(self._drivers(), default=0) != driver:
                raise fenced("clickhouse", self._pipeline)
            return
        with_fence = f" WHERE {self.fence(driver)}"
        try:
            self._insert(driver, notes, fence=with_fence)
        except Refused as error:
            raise self.translated(error) from error

    def forget(self) -> bool:
        if not self._drivers():
            return False
        sql = f"DELETE FROM {self.table} WHERE pipeline = {literal(self._pipeline)}"  # noqa: S608
        self._client.run(sql, doing="forgetting the ledger")
        return True

    def fence(self, driver: int) -> str:
        """A condition that ends the statement in which it stands where another driver is the one.
        What is under way at that very moment may still get through.
        """
        return f"throwIf(({self._last}) != {driver}, {literal(_FENCE)}) = 0"

    def translated(self, error: Refused) -> Exception:
        """Fenced, where that is what the server's error means; else the same."""
        if error.code == THROWN and _FENCE in error.message:
            return fenced("clickhouse", self._pipeline)
        return error

    @property
    def _last(self) -> str:
        whose = f"pipeline = {literal(self._pipeline)} AND startsWith(name, '{_DRIVER}')"
        return f"SELECT max(driver) FROM {self.table} WHERE {whose}"  # noqa: S608

    def _drivers(self) -> list[int]:
        found = self.read(_DRIVER)
        return [int(name.split("/")[1]) for name in found]

    def _insert(self, driver: int, notes: Mapping[str, str | None], fence: str) -> None:
        # Another number for each write, also of the next process with the same driver's number.
        self._number = max(self._number + 1, time.time_ns())
        rows = pa.table(
            {
                "name": pa.array(list(notes), pa.string()),
                "text": pa.array([text or "" for text in notes.values()], pa.string()),
                "gone": pa.array([text is None for text in notes.values()]),
            }
        )
        sql = (
            f"INSERT INTO {self.table} (pipeline, name, driver, number, text, gone) "  # noqa: S608
            f"SELECT {literal(self._pipeline)}, name, {driver}, {self._number}, text, gone "
            f"FROM input('name String, text String, gone Bool'){fence}"
        )
        self._client.insert(sql, rows, doing="writing the ledger")
