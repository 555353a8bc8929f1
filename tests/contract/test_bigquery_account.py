"""The contract suite on a real BigQuery, where environment variables name one:

- `PENSTOCK_BIGQUERY_OPTIONS`: the destination's part of a pipeline file, as JSON. Its project is
  the suite's own: the datasets `public` and `penstock` are dropped
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from penstock.destination.bigquery.destination import BigQueryDestination
from penstock.destination.bigquery.options import BigQueryOptions
from penstock.testing import Adapter, DestinationContract
from tests.warehouse_account import AccountAdapter

OPTIONS = os.environ.get("PENSTOCK_BIGQUERY_OPTIONS")


class BigQueryAccountAdapter(AccountAdapter):
    plain_names = True


@pytest.mark.release
@pytest.mark.skipif(OPTIONS is None, reason="PENSTOCK_BIGQUERY_OPTIONS names no BigQuery")
class TestBigQueryAccount(DestinationContract):
    @pytest.fixture
    def adapter(self) -> Iterator[Adapter]:
        options = BigQueryOptions.model_validate(json.loads(OPTIONS or ""))
        adapter = BigQueryAccountAdapter(
            lambda: BigQueryDestination(options, "shop"),
            "DROP SCHEMA IF EXISTS `penstock` CASCADE",
            "DROP SCHEMA IF EXISTS `public` CASCADE",
        )
        yield adapter
        adapter.close()
