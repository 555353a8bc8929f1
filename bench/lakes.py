"""Lakes to deliver to, and whether everything arrived."""

# ruff: noqa: S608 (names are quoted)

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from psycopg import sql

from bench.server import BenchError
from penstock.config.models import PipelineConfig
from penstock.destination.ducklake.lake import Lake, extension_file
from penstock.destination.ducklake.names import literal, quoted
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.embedded.postgres import EmbeddedPostgres
from tests.iceberg_spark import spark_sql

_SUMS = "count(*), sum(id), sum(quantity), sum(price)"
# A backlog is there at once: nobody has to wait for more of it.
_MAX_AGE = "1s"


class Lakes:
    """A folder for each pipeline. A DuckLake's catalogue is a database of the source's server."""

    def __init__(self, folder: Path, server: EmbeddedPostgres) -> None:
        self._folder = folder
        self._server = server

    def destination(self, system: str, name: str) -> Mapping[str, Any]:
        """The pipeline file's part: what a lake needs, and defaults."""
        folder = self._folder / f"lake_{name}"
        if system == "delta":
            return {"type": system, "path": str(folder)}
        if system == "ducklake":
            # The warm-up has the names of the first round.
            catalog = self._server.create_database(f"catalog_{name}_{uuid.uuid4().hex[:8]}")
            return {"type": system, "catalog": catalog, "data_path": str(folder)}
        return {
            "type": system,
            "catalog_file": str(folder / "catalog.db"),
            "warehouse": str(folder / "lake"),
        }

    def parts(self, system: str) -> dict[str, Any]:
        """Further parts of the pipeline file where the lake takes a backlog."""
        return {"batch": {"max_age": _MAX_AGE}}

    def require_all(
        self, system: str, config: PipelineConfig, conn: psycopg.Connection[Any]
    ) -> None:
        """A rate counts only if rows and sums of all tables are the source's. Frees the disk."""
        found = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [table for (table,) in found.fetchall()]
        for table, there in zip(tables, _sums(config.destination, tables), strict=True):
            query = sql.SQL(f"SELECT {_SUMS} FROM public.{{}}").format(sql.Identifier(table))
            here = conn.execute(query).fetchone()
            if here != there:
                raise BenchError(
                    f"{system} did not deliver what the source holds: table {table} has {there} in "
                    f"place of {here} ({_SUMS}).",
                    remedy="It is a bug of the system or of the benchmark: the figures mean "
                    "nothing.",
                )
        shutil.rmtree(self._folder / f"lake_{config.name}", ignore_errors=True)


def _sums(destination: Mapping[str, Any], tables: Sequence[str]) -> list[tuple[Any, ...] | None]:
    options = {name: value for name, value in destination.items() if name != "type"}
    if destination["type"] == "iceberg":
        return _iceberg_sums(options["catalog_file"], options["warehouse"], tables)
    if destination["type"] == "ducklake":
        lake = Lake(DucklakeOptions.model_validate(options))
        try:
            with lake.session() as session:
                return [
                    session.execute(f"SELECT {_SUMS} FROM public.{quoted(table)}").fetchone()
                    for table in tables
                ]
        finally:
            lake.close()
    with duckdb.connect() as session:
        session.execute(f"LOAD {literal(extension_file('delta'))}")
        folders = [literal(f"{options['path']}/public/{table}") for table in tables]
        return [
            session.execute(f"SELECT {_SUMS} FROM delta_scan({folder})").fetchone()
            for folder in folders
        ]


def _iceberg_sums(
    catalog: str, warehouse: str, tables: Sequence[str]
) -> list[tuple[Any, ...] | None]:
    """By Spark with Iceberg's own runtime: DuckDB compares each row with each deleted key."""
    queries = [f"SELECT {_SUMS} FROM penstock.public.`{table}`" for table in tables]
    rows = spark_sql(Path(catalog), Path(warehouse), *queries)
    return [tuple(Decimal(str(value)) for value in row.values()) for (row,) in rows]
