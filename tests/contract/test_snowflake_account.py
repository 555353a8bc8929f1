"""The contract suite on a real Snowflake, where environment variables name one:

- `PENSTOCK_SNOWFLAKE_OPTIONS`: the destination's part of a pipeline file, as JSON. Its database is
  the suite's own: the schemas `PUBLIC` and `PENSTOCK` are dropped, so the external stage is in
  another one
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from penstock.destination.snowflake.destination import SnowflakeDestination
from penstock.destination.snowflake.options import SnowflakeOptions
from penstock.testing import Adapter, DestinationContract
from tests.warehouse_account import AccountAdapter

OPTIONS = os.environ.get("PENSTOCK_SNOWFLAKE_OPTIONS")


@pytest.mark.release
@pytest.mark.skipif(OPTIONS is None, reason="PENSTOCK_SNOWFLAKE_OPTIONS names no Snowflake")
class TestSnowflakeAccount(DestinationContract):
    @pytest.fixture
    def adapter(self) -> Iterator[Adapter]:
        options = SnowflakeOptions.model_validate(json.loads(OPTIONS or ""))
        adapter = AccountAdapter(
            lambda: SnowflakeDestination(options, "shop"),
            "DROP SCHEMA IF EXISTS PENSTOCK",
            "DROP SCHEMA IF EXISTS PUBLIC",
        )
        yield adapter
        adapter.close()
