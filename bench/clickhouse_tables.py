"""A ClickHouse engine (chdb behind the tests' façade) to deliver to, and whether all arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from bench.server import BenchError
from penstock.config.models import PipelineConfig
from penstock.destination.clickhouse.client import ClickHouseClient
from penstock.destination.clickhouse.names import quoted
from penstock.destination.clickhouse.options import ClickHouseOptions
from tests.clickhouse_server import ClickHouseServer

_SUMS = ("count(*)", "sum(id)", "sum(quantity)", "sum(price)")


class ClickHouseTables(ClickHouseServer):
    """Inside ``with`` the engine runs. Each pipeline has databases of its own."""

    def __init__(self) -> None:
        super().__init__(on_disk=True)

    def destination(self, name: str) -> Mapping[str, Any]:
        """The pipeline file's part: where to, and defaults."""
        return {
            "type": "clickhouse",
            "url": self.url,
            "database": f"{{schema}}_{name}",
            "ledger_database": f"penstock_{name}",
        }

    def require_all(
        self, system: str, config: PipelineConfig, conn: psycopg.Connection[Any]
    ) -> None:
        """A rate counts only if rows and sums of all tables are the source's. Drops them."""
        options = ClickHouseOptions.model_validate(config.destination_options)
        client = ClickHouseClient(options)
        database = quoted(options.database.replace("{schema}", "public"))
        names = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in names.fetchall():
            asked = sql.SQL(", ").join(map(sql.SQL, _SUMS))
            query = sql.SQL("SELECT {} FROM public.{}").format(asked, sql.Identifier(table))
            here = conn.execute(query).fetchone()
            found = client.read(
                f"SELECT {', '.join(_SUMS)} FROM {database}.{quoted(table)}",  # noqa: S608
                doing="counting",
            )
            there = tuple(column[0].as_py() for column in found.columns)
            if here != there:
                raise BenchError(
                    f"{system} did not deliver what the source holds: table {table} has {there} in "
                    f"place of {here} ({', '.join(_SUMS)}).",
                    remedy="It is a bug of the system or of the benchmark: the figures mean "
                    "nothing.",
                )
        # Another database of the same pipeline's name is another source.
        for name in (database, quoted(options.ledger_database)):
            client.run(f"DROP DATABASE {name} SYNC", doing="dropping")
