"""Two drivers of a warehouse that start at the same time, where nothing but locks of rows keeps one
waiting for the other: Postgres has them, and Snowflake's manual promises the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import psycopg
import pytest

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.families.warehouse.ledger import WarehouseLedger
from penstock.destination.redshift.dialect import RedshiftDialect
from penstock.destination.redshift.options import RedshiftOptions
from penstock.destination.redshift.session import RedshiftSession
from penstock.model.errors import Fenced

_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


class WithoutTableLocks(RedshiftDialect):
    def fence(self, ledger: str) -> Sequence[str]:
        return ()


class StoppedSession(RedshiftSession):
    """Calls something before its first statement that begins with ``INSERT`` or ``DELETE``."""

    meanwhile: Callable[[], None] | None = None

    def run(self, statement: str) -> int:
        if self.meanwhile is not None and statement.startswith(("INSERT", "DELETE")):
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().run(statement)


def _ledger(url: str) -> tuple[StoppedSession, WarehouseLedger]:
    session = StoppedSession(ConnectionUrl(url), "penstock shop")
    options = RedshiftOptions.model_validate(
        {"url": url, "stage": "s3://no/such", "iam_role": "default"}
    )
    return session, WarehouseLedger(session, WithoutTableLocks(options, "s3://no/such"), "shop")


@pytest.mark.parametrize("earlier", [0, 2])
def test_two_drivers_that_start_at_the_same_time_have_two_numbers(
    database: str, earlier: int
) -> None:
    """Also where they are the first ones. The one with the lower number is fenced."""
    before, ledger = _ledger(database)
    for _ in range(earlier):
        ledger.take_over()
    before.close()
    session, one = _ledger(database)
    another, other = _ledger(database)
    numbers: dict[str, int] = {}
    thread = threading.Thread(target=lambda: numbers.update(other=other.take_over()))

    def meanwhile() -> None:
        """The other one comes as far as it can."""
        thread.start()
        with psycopg.connect(database, autocommit=True) as conn:
            while thread.is_alive():
                row = conn.execute(_WAITING).fetchone()
                if row is not None and row[0]:
                    break
                thread.join(0.02)

    if not earlier:
        # The table is there, as after a first driver that died behind its first statement.
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("CREATE SCHEMA penstock")
            conn.execute("CREATE TABLE penstock.shop (name text, piece int, note text)")
    session.meanwhile = meanwhile
    numbers["one"] = one.take_over()
    thread.join()
    assert sorted(numbers.values()) == [earlier + 1, earlier + 2]
    stale, current = (one, other) if numbers["one"] < numbers["other"] else (other, one)
    with pytest.raises(Fenced):
        stale.write(earlier + 1, {"who": "the earlier one"})
    current.write(earlier + 2, {"who": "the later one"})
    session.close()
    another.close()
