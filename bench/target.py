"""The destination server: a database for each measurement, and whether everything arrived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from bench.process_usage import server_cpu_seconds
from bench.server import BenchError
from penstock.embedded.postgres import EmbeddedPostgres

Contents = dict[str, tuple[int, int]]
"""By table of schema public: how many rows it has, and the sum of a hash over each row's text."""


def contents(conn: psycopg.Connection[tuple[Any, ...]]) -> Contents:
    """What the tables of schema public hold now, in whatever order the rows lie."""
    names = [
        str(row[0])
        for row in conn.execute(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        )
    ]
    found: Contents = {}
    for name in names:
        row = conn.execute(
            sql.SQL(
                "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)"
                " FROM public.{} t"
            ).format(sql.Identifier(name))
        ).fetchone()
        assert row is not None  # noqa: S101 (an aggregate without GROUP BY has one row)
        found[name] = (int(row[0]), int(row[1]))
    return found


def require_equal(system: str, source: Contents, destination: Contents) -> None:
    """A rate counts only if everything arrived."""
    if source == destination:
        return
    tables = sorted({*source, *destination})
    differing = [name for name in tables if source.get(name) != destination.get(name)]
    first, nothing = differing[0], (0, 0)
    raise BenchError(
        f"{system} did not deliver what the source holds: {len(differing)} of {len(tables)} tables "
        f"differ. Table {first} has {source.get(first, nothing)[0]:,} rows in the source and "
        f"{destination.get(first, nothing)[0]:,} in the destination (where these agree, values "
        "differ).",
        remedy="It is a bug of the system or of the benchmark: the figures mean nothing.",
    )


@dataclass(frozen=True)
class Target:
    """One database on the destination server."""

    server: EmbeddedPostgres
    name: str
    conn: psycopg.Connection[tuple[Any, ...]]

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def settle(self) -> None:
        """Begin each measurement alike: vacuumed, with nothing of the last one to write out."""
        self.conn.execute("VACUUM ANALYZE")
        self.conn.execute("CHECKPOINT")

    def cpu_seconds(self) -> float:
        """What the whole server has used so far, but for our own questions to it."""
        return server_cpu_seconds(self.server.pid, self.conn.info.backend_pid)


class Targets:
    """The targets of a workload, by system and round; what is still there goes at the end.

    With ``keep`` a target outlives its measurement, for the next phase to go on with it.
    """

    def __init__(self, server: EmbeddedPostgres, prefix: str, *, keep: bool = False) -> None:
        self._server = server
        self._prefix = prefix
        self._keep = keep
        self._open: dict[tuple[str, int], Target] = {}

    @property
    def server(self) -> EmbeddedPostgres:
        return self._server

    def known(self, system: str, number: int) -> Target | None:
        return self._open.get((system, number))

    def url(self, system: str, number: int) -> str:
        """Where the target is, or will be: a pipeline's file is written before it is made."""
        return self._server.url(self._name(system, number))

    def make(self, system: str, number: int) -> Target:
        name = self._name(system, number)
        url = self._server.create_database(name)
        target = Target(self._server, name, psycopg.connect(url, autocommit=True))
        self._open[system, number] = target
        return target

    def measured(self, system: str, number: int) -> None:
        """Free the disk, unless the target is to be kept."""
        if not self._keep:
            self._drop(self._open.pop((system, number)))

    def close(self) -> None:
        for target in self._open.values():
            self._drop(target)
        self._open.clear()

    def _name(self, system: str, number: int) -> str:
        return f"{self._prefix}_{system}_{number}"

    def _drop(self, target: Target) -> None:
        target.conn.close()
        with psycopg.connect(self._server.url(), autocommit=True) as conn:
            conn.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(target.name))
            )
            conn.execute("CHECKPOINT")


@contextmanager
def targets_of(
    server: EmbeddedPostgres | None, prefix: str, *, keep: bool = False
) -> Iterator[Targets | None]:
    """The targets of a workload; None where no system of this run writes to a database."""
    if server is None:
        yield None
        return
    targets = Targets(server, prefix, keep=keep)
    yield targets
    # Not after an error: the server goes then, with all it has.
    targets.close()
