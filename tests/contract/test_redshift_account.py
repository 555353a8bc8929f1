"""The contract suite on a real Redshift, where environment variables name one:

- `PENSTOCK_REDSHIFT_URL`: a database of its own, whose schemas `public` and `penstock` are emptied
- `PENSTOCK_REDSHIFT_STAGE`: a place on S3, with credentials as AWS's own tools find them
- `PENSTOCK_REDSHIFT_ROLE`: the ARN of the role that Redshift reads it as
- `PENSTOCK_REDSHIFT_REGION`: the bucket's region, if it is not the cluster's
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from penstock.destination.redshift.options import RedshiftOptions
from penstock.testing import Adapter, DestinationContract
from tests.redshift_adapter import RedshiftAdapter

URL = os.environ.get("PENSTOCK_REDSHIFT_URL")


class AccountAdapter(RedshiftAdapter):
    def __init__(self, url: str) -> None:
        options = {
            "url": url,
            "stage": f"{os.environ['PENSTOCK_REDSHIFT_STAGE']}/{uuid.uuid4().hex}",
            "iam_role": os.environ["PENSTOCK_REDSHIFT_ROLE"],
            "region": os.environ.get("PENSTOCK_REDSHIFT_REGION"),
        }
        super().__init__(RedshiftOptions.model_validate(options), url)
        with self.connected() as conn:
            for schema in ("penstock", "public"):
                conn.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
            conn.execute("CREATE SCHEMA public")


@pytest.mark.release
@pytest.mark.skipif(URL is None, reason="PENSTOCK_REDSHIFT_URL names no Redshift")
class TestRedshiftAccount(DestinationContract):
    @pytest.fixture
    def adapter(self) -> Iterator[Adapter]:
        adapter = AccountAdapter(URL or "")
        yield adapter
        adapter.close()
