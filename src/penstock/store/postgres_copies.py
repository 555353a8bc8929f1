"""Copies, claims, wishes and rules in the Postgres store: a few statements, however many tables."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, get_args

import psycopg
from psycopg.types.json import Json

from penstock.config.table_patterns import Rule
from penstock.model.errors import StoreError
from penstock.model.lsn import format_lsn, parse_lsn
from penstock.source.copy_plan import CopyPlan
from penstock.store.copies import (
    WISHES,
    ChunkDone,
    ChunkKey,
    CopyProgress,
    CopyStore,
    TableKey,
    Wish,
)

Connection = psycopg.Connection[tuple[Any, ...]]

_COPIES = """
SELECT table_oid, copy_id::text, first_lsn::text, last_lsn::text, snapshots, plan::text, started_at
  FROM penstock.table_copy WHERE pipeline = %s
"""
_CHUNKS = """
SELECT table_oid, number, rows, bytes FROM penstock.copy_chunk WHERE pipeline = %s
"""
_SET_COPY = """
INSERT INTO penstock.table_copy (pipeline, table_oid, copy_id, first_lsn, last_lsn, plan)
VALUES (%(pipeline)s, %(table)s::oid, %(id)s::uuid, %(lsn)s::pg_lsn, %(lsn)s::pg_lsn, %(plan)s)
ON CONFLICT (pipeline, table_oid) DO UPDATE
   SET copy_id = excluded.copy_id, first_lsn = excluded.first_lsn, last_lsn = excluded.last_lsn,
       plan = excluded.plan, snapshots = 1, started_at = now()
"""
_DELETE_CHUNKS = """
DELETE FROM penstock.copy_chunk WHERE pipeline = %s AND table_oid = ANY (%s::oid[])
"""
_SET_PLAN = """
UPDATE penstock.table_copy SET plan = %s
 WHERE pipeline = %s AND table_oid = %s::oid AND copy_id = %s::uuid
"""

_SET_SNAPSHOT = """
UPDATE penstock.table_copy c SET last_lsn = %s::pg_lsn, snapshots = snapshots + 1
  FROM unnest(%s::oid[], %s::uuid[]) AS meant (table_oid, copy_id)
 WHERE c.pipeline = %s AND c.table_oid = meant.table_oid AND c.copy_id = meant.copy_id
RETURNING c.table_oid
"""
# Locked, so that none of them is started again before the chunks are there.
_MEANT_COPIES = """
SELECT c.table_oid
  FROM penstock.table_copy c
  JOIN unnest(%s::oid[], %s::uuid[]) AS meant (table_oid, copy_id)
    ON c.table_oid = meant.table_oid AND c.copy_id = meant.copy_id
 WHERE c.pipeline = %s ORDER BY c.table_oid FOR SHARE OF c
"""
_SET_CHUNKS = """
INSERT INTO penstock.copy_chunk (pipeline, table_oid, number, rows, bytes)
SELECT %s, done.* FROM unnest(%s::oid[], %s::int[], %s::bigint[], %s::bigint[]) AS done
ON CONFLICT (pipeline, table_oid, number) DO UPDATE
   SET rows = excluded.rows, bytes = excluded.bytes, done_at = now()
"""
_DELETE_COPIES = """
DELETE FROM penstock.table_copy WHERE pipeline = %s AND table_oid = ANY (%s::oid[])
"""
_SET_WORKER = """
INSERT INTO penstock.copy_worker (pipeline, worker) VALUES (%s, %s)
ON CONFLICT (pipeline) DO UPDATE SET worker = excluded.worker, since = now()
"""
_SET_CLAIMS = """
INSERT INTO penstock.copy_claim (pipeline, table_oid, worker)
SELECT %s, table_oid, %s FROM unnest(%s::oid[]) AS asked (table_oid)
ON CONFLICT (pipeline, table_oid) DO UPDATE SET worker = excluded.worker
 WHERE copy_claim.worker = excluded.worker
RETURNING table_oid
"""
_DELETE_CLAIMS = """
DELETE FROM penstock.copy_claim
 WHERE pipeline = %s AND worker = %s
   AND (%s::oid[] IS NULL OR table_oid = ANY (%s::oid[]))
"""
_SET_WISHES = """
INSERT INTO penstock.table_wish (pipeline, table_oid, wish)
SELECT %s, asked.* FROM unnest(%s::oid[], %s::text[]) AS asked
ON CONFLICT (pipeline, table_oid) DO UPDATE SET wish = excluded.wish, since = now()
"""
_DELETE_WISHES = """
DELETE FROM penstock.table_wish WHERE pipeline = %s AND table_oid = ANY (%s::oid[])
"""
_DELETE_MET_WISHES = """
DELETE FROM penstock.table_wish w
 USING unnest(%s::oid[], %s::text[]) AS met (table_oid, wish)
 WHERE w.pipeline = %s AND w.table_oid = met.table_oid AND w.wish = met.wish
"""
_SET_RULES = """
INSERT INTO penstock.table_rule (pipeline, schema_name, table_name, rule)
SELECT %s, asked.* FROM unnest(%s::text[], %s::text[], %s::text[]) AS asked
ON CONFLICT (pipeline, schema_name, table_name) DO UPDATE SET rule = excluded.rule, since = now()
"""
_DELETE_RULES = """
DELETE FROM penstock.table_rule r
 USING unnest(%s::text[], %s::text[]) AS gone (schema_name, table_name)
 WHERE r.pipeline = %s AND r.schema_name = gone.schema_name AND r.table_name = gone.table_name
"""


class PostgresCopies(CopyStore):
    """The part of PostgresStore that copies.py describes."""

    @abstractmethod
    def _transaction(self, action: str) -> AbstractContextManager[Connection]:
        """A connection inside a transaction. ``action`` completes "While …" in errors."""

    # -- copies ----------------------------------------------------------------------------------

    def _read_copies(self) -> dict[int, CopyProgress]:
        with self._transaction("reading the progress of copies") as conn:
            rows = conn.execute(_COPIES, [self.pipeline]).fetchall()
            chunks = conn.execute(_CHUNKS, [self.pipeline]).fetchall() if rows else []
        done: dict[int, dict[int, ChunkDone]] = {}
        for table, number, count, size in chunks:
            done.setdefault(table, {})[number] = ChunkDone(count, size)
        return {
            table: CopyProgress(
                table,
                copy_id,
                parse_lsn(first),
                parse_lsn(last),
                snapshots,
                CopyPlan.from_json(json.loads(plan)),
                started_at,
                done.get(table, {}),
            )
            for table, copy_id, first, last, snapshots, plan, started_at in rows
        }

    def _write_new_copies(
        self, plans: Mapping[int, CopyPlan], ids: Mapping[int, str], lsn: int
    ) -> datetime:
        # In the order of their oids, so that two that write many do not wait for each other.
        values = [
            {
                "pipeline": self.pipeline,
                "table": table,
                "id": ids[table],
                "lsn": format_lsn(lsn),
                "plan": Json(plan.to_json()),
            }
            for table, plan in sorted(plans.items())
        ]
        with self._transaction(f"recording the start of {len(plans)} copies") as conn:
            conn.cursor().executemany(_SET_COPY, values)
            conn.execute(_DELETE_CHUNKS, [self.pipeline, list(plans)])
            ((now,),) = conn.execute("SELECT now()").fetchall()
        started_at: datetime = now
        return started_at

    def _write_snapshot(self, ids: Mapping[int, str], lsn: int) -> None:
        with self._transaction(f"recording a new snapshot of {len(ids)} copies") as conn:
            values = [format_lsn(lsn), list(ids), list(ids.values()), self.pipeline]
            self._require_all(ids, conn.execute(_SET_SNAPSHOT, values).fetchall())

    def _write_plan(self, copy: CopyProgress) -> None:
        values = [Json(copy.plan.to_json()), self.pipeline, copy.table, copy.copy_id]
        with self._transaction("noting the files of a table") as conn:
            conn.execute(_SET_PLAN, values)

    def _write_chunks(self, ids: Mapping[int, str], done: Mapping[ChunkKey, ChunkDone]) -> None:
        with self._transaction(f"recording {len(done)} copied chunks") as conn:
            meant = [list(ids), list(ids.values()), self.pipeline]
            self._require_all(ids, conn.execute(_MEANT_COPIES, meant).fetchall())
            columns = [
                [table for table, _number in done],
                [number for _table, number in done],
                [chunk.rows for chunk in done.values()],
                [chunk.bytes for chunk in done.values()],
            ]
            conn.execute(_SET_CHUNKS, [self.pipeline, *columns])

    def _remove_copies(self, tables: Collection[int]) -> None:
        with self._transaction(f"forgetting {len(tables)} copies") as conn:
            conn.execute(_DELETE_COPIES, [self.pipeline, list(tables)])

    def _require_all(self, ids: Mapping[int, str], rows: list[tuple[Any, ...]]) -> None:
        gone = ids.keys() - {row[0] for row in rows}
        if gone:
            raise self._copy_is_gone(min(gone))

    # -- claims ----------------------------------------------------------------------------------

    def _write_worker(self, worker: str) -> None:
        with self._transaction("taking over the copies") as conn:
            # First of all: it waits for a claim that is being written, and the next waits for it.
            conn.execute(_SET_WORKER, [self.pipeline, worker])
            conn.execute(
                "DELETE FROM penstock.copy_claim WHERE pipeline = %s AND worker <> %s",
                [self.pipeline, worker],
            )

    def _take_claims(self, worker: str, tables: Collection[int]) -> set[int]:
        with self._transaction(f"claiming {len(tables)} copies") as conn:
            row = conn.execute(
                "SELECT worker FROM penstock.copy_worker WHERE pipeline = %s FOR SHARE",
                [self.pipeline],
            ).fetchone()
            current = None if row is None else row[0]
            if current != worker:
                raise self._fenced(worker, current)
            rows = conn.execute(_SET_CLAIMS, [self.pipeline, worker, sorted(set(tables))])
            return {table for (table,) in rows.fetchall()}

    def _read_claims(self) -> dict[int, str]:
        with self._transaction("reading who copies what") as conn:
            rows = conn.execute(
                "SELECT table_oid, worker FROM penstock.copy_claim WHERE pipeline = %s",
                [self.pipeline],
            ).fetchall()
        return dict(rows)

    def _remove_claims(self, worker: str, tables: Collection[int] | None) -> None:
        asked = None if tables is None else list(tables)
        with self._transaction("giving copies back") as conn:
            conn.execute(_DELETE_CLAIMS, [self.pipeline, worker, asked, asked])

    # -- wishes and rules ------------------------------------------------------------------------

    def _read_wishes(self) -> dict[int, Wish]:
        with self._transaction("reading what is wanted of tables") as conn:
            rows = conn.execute(
                "SELECT table_oid, wish FROM penstock.table_wish WHERE pipeline = %s",
                [self.pipeline],
            ).fetchall()
        return {table: _known(wish, WISHES) for table, wish in rows}

    def _write_wishes(self, wishes: Mapping[int, Wish | None]) -> None:
        kept = {table: wish for table, wish in wishes.items() if wish is not None}
        with self._transaction(f"recording what is wanted of {len(wishes)} tables") as conn:
            conn.execute(_DELETE_WISHES, [self.pipeline, [t for t in wishes if t not in kept]])
            conn.execute(_SET_WISHES, [self.pipeline, list(kept), list(kept.values())])

    def _remove_wishes(self, wishes: Mapping[int, Wish]) -> None:
        with self._transaction(f"recording that {len(wishes)} tables got what is wanted") as conn:
            conn.execute(_DELETE_MET_WISHES, [list(wishes), list(wishes.values()), self.pipeline])

    def _read_rules(self) -> dict[TableKey, Rule]:
        with self._transaction("reading the rules for single tables") as conn:
            rows = conn.execute(
                "SELECT schema_name, table_name, rule FROM penstock.table_rule WHERE pipeline = %s",
                [self.rules_of],
            ).fetchall()
        return {(schema, name): _known(rule, get_args(Rule)) for schema, name, rule in rows}

    def _write_rules(self, rules: Mapping[TableKey, Rule | None]) -> None:
        kept = {name: rule for name, rule in rules.items() if rule is not None}
        gone = [name for name in rules if name not in kept]
        with self._transaction(f"recording the rules for {len(rules)} tables") as conn:
            schemas, names = [schema for schema, _ in gone], [name for _, name in gone]
            conn.execute(_DELETE_RULES, [schemas, names, self.rules_of])
            schemas, names = [schema for schema, _ in kept], [name for _, name in kept]
            conn.execute(_SET_RULES, [self.rules_of, schemas, names, list(kept.values())])


def _known(value: str, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise StoreError(
            f"The store holds {value!r} where this version of Penstock knows {', '.join(known)}.",
            remedy="Use the version that wrote it, or a newer one.",
        )
    return value
