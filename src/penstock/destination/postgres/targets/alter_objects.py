"""Keys, indexes and constraints of a target whose table is changed.

What is recorded as ours follows the source: it goes, gets a new name, or is made anew. Targets that
were there before us have only the keys that rows are found by.
"""

from __future__ import annotations

from psycopg import sql

from penstock.destination.postgres.progress import read_progress
from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.targets.alter_types import attempt
from penstock.destination.postgres.targets.target_keys import make_key, make_primary_key
from penstock.destination.postgres.targets.target_objects import TargetObjects, unvalidated_keys
from penstock.destination.postgres.targets.target_record import read_records
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ConstraintDefinition, IndexDefinition, TableDefinition

Made = IndexDefinition | ConstraintDefinition
Key = tuple[str, str]
"""Kind and name in the source."""

_PRIMARY = "SELECT conname::text FROM pg_constraint WHERE conrelid = %s::oid AND contype = 'p'"

# Unique indexes over plain columns and all rows that are neither recorded nor a constraint's.
_KEY_INDEXES = """
SELECT n.nspname::text, x.relname::text, array_agg(a.attname::text)
  FROM pg_index i
  JOIN pg_class x ON x.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = x.relnamespace
 CROSS JOIN LATERAL unnest(i.indkey::int2[]) AS k (attnum)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indrelid = %s::oid AND i.indisunique AND i.indpred IS NULL AND NOT 0 = ANY (i.indkey)
   AND NOT x.relname = ANY (%s)
   AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
 GROUP BY i.indexrelid, n.nspname, x.relname
"""

# Foreign keys of other targets to this one that we made.
_REFERRING = """
SELECT o.source_table, o.source_name, n.nspname::text, c.relname::text, o.name
  FROM penstock.target_object o
  JOIN penstock.target_table t USING (pipeline, source_table)
  JOIN pg_constraint k ON k.conrelid = t.target AND k.conname = o.name AND k.contype = 'f'
  JOIN pg_class c ON c.oid = k.conrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_class i ON i.oid = k.conindid
 WHERE o.pipeline = %s AND o.kind = 'constraint' AND k.confrelid = %s::oid
   AND (%s::text IS NULL OR i.relname = %s)
"""

_STANDING = """
SELECT o.kind, o.source_name, o.name FROM penstock.target_object o
 WHERE o.pipeline = %s AND o.source_table = %s AND CASE o.kind
       WHEN 'index' THEN EXISTS (
            SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
             WHERE i.indrelid = %s::oid AND x.relname = o.name)
       ELSE EXISTS (
            SELECT FROM pg_constraint k WHERE k.conrelid = %s::oid AND k.conname = o.name) END
"""

_COMPLETE = """
SELECT n.nspname::text, c.relname::text
  FROM penstock.target_table t
  JOIN pg_class c ON c.oid = t.target
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE t.pipeline = %s AND t.complete
"""


class AlteredObjects:
    """What belongs to one target, during one change of it."""

    def __init__(
        self, conn: Connection, pipeline: str, change: TableChange, target: TableDefinition
    ) -> None:
        """``target`` is the table as it is over here, before the change."""
        self._conn = conn
        self._pipeline = pipeline
        self._change = change
        self._target = target
        record = read_records(conn, pipeline, change.oid).get(change.oid)
        if record is not None and record.target != target.oid:
            record = None  # it was another table
        self._is_ours = record is not None and record.created
        # While rows are copied there are neither keys nor indexes: they come after that.
        self._is_complete = record is None or record.complete
        self._standing = self._recorded()

    def drop(self, before: TableDefinition, after: TableDefinition) -> None:
        """All that goes, and all that has to be made anew."""
        for kind, old, new in self._pairs():
            if old is not None and (new is None or self._change.is_rebuilt(old, new)):
                self._drop(kind, old.name)
        renamed = self._change.renamed
        if renamed.names(before.primary_key) != after.primary_key:
            for (name,) in self._conn.execute(_PRIMARY, [self._target.oid]).fetchall():
                self.drop_referring(name)
                self._alter(sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(name)))
        key = _index_key(before)
        if key and frozenset(renamed.names(key)) != _index_key(after):
            names = list(self._recorded().values())
            for schema, name, columns in self._conn.execute(
                _KEY_INDEXES, [self._target.oid, names]
            ).fetchall():
                if set(columns) == key:
                    self.drop_referring(name)
                    self._conn.execute(
                        sql.SQL("DROP INDEX {}").format(sql.Identifier(schema, name))
                    )

    def drop_referring(self, index: str | None = None) -> None:
        """The foreign keys that we made to this target, or to one of its indexes. The source has
        them no longer, or they are made again when the rows are complete.
        """
        for owner, name, schema, table, actual in self._conn.execute(
            _REFERRING, [self._pipeline, self._target.oid, index, index]
        ).fetchall():
            self._conn.execute(
                sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(
                    sql.Identifier(schema, table), sql.Identifier(actual)
                )
            )
            self._forget(owner, ("constraint", name))

    def rename(self) -> None:
        """What only has a new name. Where somebody else has that name, it keeps its own."""
        found = self._recorded()
        renamed: dict[Key, tuple[str, str]] = {}
        for kind, old, new in self._pairs():
            if old is None or new is None or old.name == new.name or (kind, old.name) not in found:
                continue
            actual = found[kind, old.name]
            wanted = sql.Identifier(new.name)
            statement = (
                sql.SQL("ALTER INDEX {} RENAME TO {}").format(
                    sql.Identifier(self._target.schema, actual), wanted
                )
                if kind == "index"
                else sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}").format(
                    self._table, sql.Identifier(actual), wanted
                )
            )
            error = attempt(self._conn, statement)
            renamed[kind, old.name] = (new.name, actual if error else new.name)
        # First all away: names may have passed from one to another.
        for key in renamed:
            self._forget(self._change.oid, key)
        for (kind, _old), (name, actual) in renamed.items():
            self._conn.execute(
                "INSERT INTO penstock.target_object VALUES (%s, %s, %s, %s, %s)",
                [self._pipeline, self._change.oid, kind, name, actual],
            )
        self._standing = {key: n for key, n in self._standing.items() if key not in renamed}
        self._standing |= {(kind, name): n for (kind, _), (name, n) in renamed.items()}

    def make_keys(self, after: TableDefinition) -> None:
        if self._is_complete:
            make_key(self._conn, self._target.oid, after)
            if self._is_ours:
                make_primary_key(self._conn, self._target.oid, after)

    def make(self, after: TableDefinition) -> list[str]:
        """What is new, and what went with a column that was made anew."""
        lost = self._standing.keys() - self._recorded().keys()
        for key in lost:
            self._forget(self._change.oid, key)
        kinds = {step.kind for step in self._change.differences()}
        touched = {"index", "constraint", "primary_key", "replica_identity"}
        if not self._is_ours or not self._is_complete or not (lost or kinds & touched):
            return []
        objects = TargetObjects(self._conn, self._pipeline)
        objects.make(self._change.oid, after)
        # While triggers are on, every statement would have to keep them.
        if self._conn.execute("SHOW session_replication_role").fetchone() == ("replica",):
            complete = {(s, n) for s, n in self._conn.execute(_COMPLETE, [self._pipeline])}
            objects.make_foreign_keys(self._change.oid, after, complete)
        return [*objects.notes, *self._unheld(objects)]

    def _unheld(self, objects: TargetObjects) -> list[str]:
        """Foreign keys that do not hold, though both of their tables stand at one point. Others are
        validated again when they do.
        """
        if not objects.unheld:
            return []
        progress = read_progress(self._conn, self._pipeline)
        behind = progress.watermarks.behind if progress and progress.watermarks else {}
        return [
            objects.unheld[key.name]
            for key in unvalidated_keys(self._conn, self._pipeline)
            if key.owner == self._change.oid
            and key.name in objects.unheld
            and key.ends.isdisjoint(behind)
        ]

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self._target.schema, self._target.name)

    def _alter(self, action: sql.Composed) -> None:
        self._conn.execute(sql.SQL("ALTER TABLE {} {}").format(self._table, action))

    def _pairs(self) -> list[tuple[str, Made | None, Made | None]]:
        """Foreign keys first: they need what the others bring."""
        pairs: list[tuple[str, Made | None, Made | None]] = [
            ("constraint", old, new)
            for old, new in sorted(
                self._change.constraints,
                key=lambda pair: all(one is None or one.kind != "foreign" for one in pair),
            )
        ]
        return pairs + [("index", old, new) for old, new in self._change.indexes]

    def _recorded(self) -> dict[Key, str]:
        """What we made and is still there: its actual name."""
        oid = self._target.oid
        rows = self._conn.execute(_STANDING, [self._pipeline, self._change.oid, oid, oid])
        return {(kind, source_name): name for kind, source_name, name in rows}

    def _drop(self, kind: str, source_name: str) -> None:
        name = self._recorded().get((kind, source_name))
        if name is not None:
            self.drop_referring(name)
            if kind == "index":
                self._conn.execute(
                    sql.SQL("DROP INDEX {}").format(sql.Identifier(self._target.schema, name))
                )
            else:
                self._alter(sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(name)))
        # One that a person dropped is made again when the source makes it again.
        self._forget(self._change.oid, (kind, source_name))

    def _forget(self, source: int, key: Key) -> None:
        self._conn.execute(
            "DELETE FROM penstock.target_object WHERE pipeline = %s AND source_table = %s"
            " AND kind = %s AND source_name = %s",
            [self._pipeline, source, *key],
        )


def _index_key(table: TableDefinition) -> frozenset[str]:
    """What rows are found by, where that is not the primary key but an index of our own."""
    key = frozenset(table.merge_key)
    return frozenset() if key == set(table.primary_key) else key
