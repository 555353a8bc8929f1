"""Which chunks a pipeline reads, by the source's own log, and which of them it had before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.crash.copied_tables import KEYED

ROLE = "penstock_reads"
"""Whose statements the server logs: the pipeline's, and nobody else's."""

_READ = re.compile(rb'COPY \(SELECT .* FROM ONLY "public"\."(\w+)" WHERE ctid >= \'\((\d+),0\)\'')

Place = tuple[str, int]
"""The relation, and its chunk's first block."""


def create_reading_role(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {ROLE} SUPERUSER REPLICATION LOGIN".encode())
        conn.execute(f"ALTER ROLE {ROLE} SET log_statement = 'all'".encode())


@dataclass(frozen=True)
class CopyState:
    """One table's copy in the store: which one it is, and where its chunks lie."""

    table: str
    copy_id: str
    chunks: int
    done: frozenset[Place]


def copy_states(url: str, pipeline: str) -> dict[str, CopyState]:
    """Those that the store has, by table; none before there is a store."""
    with psycopg.connect(url, autocommit=True) as conn:
        try:
            # One statement, so one snapshot.
            rows = conn.execute(
                """SELECT c.table_oid::regclass::text, c.copy_id::text, c.plan -> 'chunks',
                          ARRAY(SELECT number FROM penstock.copy_chunk d
                                 WHERE d.pipeline = c.pipeline AND d.table_oid = c.table_oid)
                     FROM penstock.table_copy c WHERE pipeline = %s""",
                [pipeline],
            ).fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return {}
    return {
        table: CopyState(
            table,
            copy_id,
            len(chunks),
            frozenset((c["name"], c["first_block"]) for c in chunks if c["number"] in done),
        )
        for table, copy_id, chunks, done in rows
    }


class ChunkReads:
    """Compares what the source is asked for with what was done before.

    ``mark`` begins a part of the run; what was done then is not read in it, as long as the copy is
    the same one. ``again`` collects what was; ``kept`` counts the chunks of
    unfinished copies that had a chance to be.
    """

    def __init__(self, log: Path, url: str, pipeline: str) -> None:
        self._log = log
        self._url = url
        self._pipeline = pipeline
        self._before: Mapping[str, CopyState] = {}
        self._place = 0
        self.reads = 0
        self.kept = 0
        self.again: list[str] = []

    def mark(self, *, judge: bool = True) -> None:
        """``judge`` False: whatever was read since the last mark may be."""
        states = copy_states(self._url, self._pipeline)
        # After the states: the read of a chunk that is done stands in front of this.
        end = self._log.stat().st_size
        with self._log.open("rb") as file:
            file.seek(self._place)
            found = _READ.findall(file.read(end - self._place))
        reads = {(name.decode(), int(block)) for name, block in found}
        self.reads += len(found)
        for table, before in self._before.items():
            now = states.get(table)
            if judge and table in KEYED and now is not None and now.copy_id == before.copy_id:
                if len(before.done) < before.chunks:
                    self.kept += len(before.done)
                self.again += [f"{table}: {place}" for place in sorted(before.done & reads)]
        self._before, self._place = states, end
