"""How the contract suite reads back what `redshift` delivered, from whatever stands behind it."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from penstock.destination.redshift.destination import RedshiftDestination
from penstock.destination.redshift.options import RedshiftOptions
from penstock.testing import TableName
from tests.warehouse_adapter import WarehouseAdapter


class RedshiftAdapter(WarehouseAdapter):
    """``reader`` is the URL that rows are read from."""

    longest_text = 65_535

    def __init__(self, options: RedshiftOptions, reader: str) -> None:
        super().__init__(lambda: RedshiftDestination(self.options, "shop"))
        self.options = options
        self.reader = reader

    def read(self, relation: TableName) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        schema, table = (part.lower().replace('"', '""') for part in relation)
        with self.connected() as conn:
            cursor = conn.execute(f'SELECT * FROM "{schema}"."{table}"'.encode())
            return [column.name for column in cursor.description or []], cursor.fetchall()

    def connected(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            self.reader, autocommit=True, prepare_threshold=None, client_encoding="utf8"
        )
