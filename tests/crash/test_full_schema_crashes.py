"""`penstock snapshot` with `schema: full`, killed before, between and after: started again, it is
the same database.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.passed_failpoints import is_of_schema
from tests.fix_pipeline import PipelineUnderTest
from tests.fix_postgres import drop_database
from tests.whole_schemas import RENTAL_TABLES, RENTALS, RENTED, execute, rows_text, schema_text

pytestmark = [pytest.mark.slow, pytest.mark.release]

# Before what comes before the rows is committed, when it is and no row is there, and before what
# comes after them is committed.
PLACES = ("postgres.schema_before", "postgres.copy_truncated", "postgres.schema_after")


@pytest.fixture
def empty(pg_server: EmbeddedPostgres, pipeline: PipelineUnderTest) -> Iterator[str]:
    name = f"whole_{pipeline.name}"
    yield pg_server.create_database(name)
    drop_database(pg_server, name)


def test_killed_around_the_copy(pipeline: PipelineUnderTest, empty: str) -> None:
    assert any(map(is_of_schema, PLACES))
    execute(pipeline.url, (*RENTALS, *RENTED))
    pipeline.configure(copy=True, destination={"type": "postgres", "url": empty, "schema": "full"})
    fired = pipeline.folder / "fired"
    fired.mkdir()
    environment = {
        **os.environ,
        "PENSTOCK_FAILPOINTS": ",".join(f"{place}=kill" for place in PLACES),
        "PENSTOCK_FAILPOINT_DIR": str(fired),
    }
    codes: list[int] = []
    while len(codes) <= len(PLACES) and codes[-1:] != [0]:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "snapshot", str(pipeline.file)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        codes.append(done.returncode)
    assert codes == [-9, -9, -9, 0], done.stderr[-3000:]
    assert {path.name for path in fired.iterdir()} == set(PLACES)
    assert schema_text(pipeline.url) == schema_text(empty)
    for table in (*RENTAL_TABLES, "store.sums"):
        assert rows_text(pipeline.url, table) == rows_text(empty, table)
