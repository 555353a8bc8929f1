"""Lakes to deliver to, and whether everything arrived."""

# ruff: noqa: S608 (names are quoted)

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
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
from penstock.destination.iceberg.options import IcebergOptions
from penstock.embedded.postgres import EmbeddedPostgres
from tests.lake_rows import IcebergReader

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
        tables = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in tables.fetchall():
            query = sql.SQL(f"SELECT {_SUMS} FROM public.{{}}").format(sql.Identifier(table))
            here = conn.execute(query).fetchone()
            there = _sums(config.destination, table)
            if here != there:
                raise BenchError(
                    f"{system} did not deliver what the source holds: table {table} has {there} in "
                    f"place of {here} ({_SUMS}).",
                    remedy="It is a bug of the system or of the benchmark: the figures mean "
                    "nothing.",
                )
        shutil.rmtree(self._folder / f"lake_{config.name}", ignore_errors=True)


def _sums(destination: Mapping[str, Any], table: str) -> tuple[Any, ...] | None:
    options = {name: value for name, value in destination.items() if name != "type"}
    if destination["type"] == "ducklake":
        lake = Lake(DucklakeOptions.model_validate(options))
        try:
            with lake.session() as session:
                return session.execute(f"SELECT {_SUMS} FROM public.{quoted(table)}").fetchone()
        finally:
            lake.close()
    if destination["type"] == "iceberg":
        reader = IcebergReader(IcebergOptions.model_validate(options))
        try:
            return reader.row(_SUMS, ("public", table))
        finally:
            reader.close()
    with duckdb.connect() as session:
        session.execute(f"LOAD {literal(extension_file('delta'))}")
        folder = literal(f"{options['path']}/public/{table}")
        return session.execute(f"SELECT {_SUMS} FROM delta_scan({folder})").fetchone()
