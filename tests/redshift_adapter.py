"""How the contract suite reads back what `redshift` delivered, from whatever stands behind it."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from collections import Counter

import psycopg

from penstock.destination.contract import Destination
from penstock.destination.families.target import Target
from penstock.destination.redshift.destination import RedshiftDestination
from penstock.destination.redshift.options import RedshiftOptions
from penstock.testing import Adapter, FrozenRow, TableName, frozen


class RedshiftAdapter(Adapter):
    """``reader`` is the URL that rows are read from."""

    keeps = "rows"
    keeps_messages = False
    follows_columns = False
    longest_text = 65_535

    def __init__(self, options: RedshiftOptions, reader: str) -> None:
        self.options = options
        self.reader = reader
        self._made: list[RedshiftDestination] = []

    def make(self) -> Destination:
        self._made.append(RedshiftDestination(self.options, "shop"))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        schema, table = (part.lower().replace('"', '""') for part in name)
        with self.connected() as conn:
            cursor = conn.execute(f'SELECT * FROM "{schema}"."{table}"'.encode())
            names = [column.name for column in cursor.description or []]
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        called = self._called(name)
        return Counter(
            frozen(
                {called[k]: None if v is None else str(v) for k, v in row.items() if k in called}
            )
            for row in found
        )

    def _called(self, name: TableName) -> dict[str, str]:
        """The columns' names at the source, by what Redshift makes of them."""
        destination = self._made[-1]
        known = destination.ledger.read("table/").values()
        (target,) = (
            each for each in map(Target.from_text, known) if (each.schema, each.name) == name
        )
        return {destination.dialect.named(column): column for column in target.columns}

    def connected(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            self.reader, autocommit=True, prepare_threshold=None, client_encoding="utf8"
        )

    def close(self) -> None:
        for destination in self._made:
            destination.close()
