"""The contract suite on a real BigQuery, where environment variables name one:

- `PENSTOCK_BIGQUERY_OPTIONS`: the destination's part of a pipeline file, as JSON. Its project is
  the suite's own: the datasets `public` and `penstock` are dropped
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from penstock.destination.bigquery.destination import BigQueryDestination
from penstock.destination.bigquery.options import BigQueryOptions
from penstock.destination.contract import Destination
from penstock.destination.families.target import Target
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen

OPTIONS = os.environ.get("PENSTOCK_BIGQUERY_OPTIONS")


class AccountAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False
    plain_names = True

    def __init__(self, options: str) -> None:
        self.options = BigQueryOptions.model_validate(json.loads(options))
        self._made = [BigQueryDestination(self.options, "shop")]
        for schema in ("penstock", "public"):
            self._made[0].session.run(f"DROP SCHEMA IF EXISTS `{schema}` CASCADE")
        self._made[0].bucket.delete("note.json")

    def make(self) -> Destination:
        self._made.append(BigQueryDestination(self.options, "shop"))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        destination = self._made[-1]
        known = destination.ledger.read("table/").values()
        (target,) = (
            each for each in map(Target.from_text, known) if (each.schema, each.name) == name
        )
        columns = ", ".join(destination.dialect.columns(target))
        found = destination.session.rows(
            f"SELECT {columns} FROM {destination.dialect.table(target)}"  # noqa: S608 (quoted)
        )
        return Counter(
            frozen(
                {
                    column: None if value is None else str(value)
                    for column, value in zip(target.columns, row, strict=False)
                }
            )
            for row in found
        )

    def close(self) -> None:
        for destination in self._made:
            destination.close()


@pytest.mark.release
@pytest.mark.skipif(OPTIONS is None, reason="PENSTOCK_BIGQUERY_OPTIONS names no BigQuery")
class TestBigQueryAccount(DestinationContract):
    @pytest.fixture
    def adapter(self) -> Iterator[Adapter]:
        adapter = AccountAdapter(OPTIONS or "")
        yield adapter
        adapter.close()
