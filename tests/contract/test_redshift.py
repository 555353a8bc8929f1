"""The contract suite on `redshift`, with a stand-in for Redshift (tests/redshift_stand_in.py): its
rows are in Postgres, its stage in SeaweedFS, and every statement passes a deny-list.
"""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.destination.contract import Destination
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from penstock.destination.redshift.destination import RedshiftDestination
from penstock.destination.redshift.options import RedshiftOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen
from tests.objects_server import ObjectServer
from tests.redshift_stand_in import ROLE, RedshiftStandIn

PIPELINE = "shop"


class RedshiftAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False

    def __init__(self, database: str, objects: ObjectServer, **options: Any) -> None:
        self.database = database
        self.stand_in = RedshiftStandIn(database, objects.direct_options)
        self.options = RedshiftOptions.model_validate(
            {
                "url": self.stand_in.url,
                "stage": objects.place(),
                "stage_options": objects.direct_options,
                "iam_role": ROLE,
                **options,
            }
        )
        self._made: list[Destination] = []

    def make(self) -> Destination:
        self._made.append(RedshiftDestination(self.options, PIPELINE))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        schema, table = (part.lower().replace('"', '""') for part in name)
        with psycopg.connect(self.database) as conn:
            cursor = conn.execute(f'SELECT * FROM "{schema}"."{table}"'.encode())
            names = [column.name for column in cursor.description or []]
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return Counter(
            frozen({column: _text(value) for column, value in row.items() if column != NO_COLUMNS})
            for row in found
        )

    def close(self) -> None:
        for destination in self._made:
            destination.close()
        self.stand_in.close()
        assert not self.stand_in.denied


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


@pytest.fixture
def adapter(database: str, object_server: ObjectServer) -> Iterator[RedshiftAdapter]:
    adapter = RedshiftAdapter(database, object_server)
    yield adapter
    adapter.close()


@pytest.mark.release
class TestRedshiftStandIn(DestinationContract):
    """Not on Redshift."""
