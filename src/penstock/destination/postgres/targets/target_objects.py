"""Indexes and constraints of targets that we made: all that rows do not need to be replicated.

Each is recorded in the transaction that makes it, so that it is made once, and never again after a
person dropped it. What the destination cannot make is noted: nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import psycopg
from psycopg import errors, sql

from penstock.destination.postgres.sessions.session import Connection, is_passing, run, said
from penstock.destination.postgres.targets.create_table import numbered_name
from penstock.model.table_definition import ConstraintDefinition, IndexDefinition, TableDefinition

_FREE_NAMES = 100

# Foreign keys that we made and that refer to a target.
_REFERRING = """
SELECT o.source_table, o.source_name, n.nspname, c.relname, o.name
  FROM penstock.target_object o
  JOIN penstock.target_table t USING (pipeline, source_table)
  JOIN pg_constraint k ON k.conrelid = t.target AND k.conname = o.name AND k.contype = 'f'
  JOIN pg_class c ON c.oid = k.conrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE o.pipeline = %s AND o.kind = 'constraint' AND k.confrelid = %s::oid
"""

# Foreign keys that we made between two targets, and that nobody has validated so far.
_UNVALIDATED = """
SELECT o.source_table, o.source_name, r.source_table, n.nspname::text, c.relname::text, o.name
  FROM penstock.target_object o
  JOIN penstock.target_table t USING (pipeline, source_table)
  JOIN pg_constraint k ON k.conrelid = t.target AND k.conname = o.name AND k.contype = 'f'
                      AND NOT k.convalidated
  JOIN penstock.target_table r ON r.pipeline = o.pipeline AND r.target = k.confrelid
  JOIN pg_class c ON c.oid = k.conrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE o.pipeline = %s AND o.kind = 'constraint'
 ORDER BY 1, 2
"""

_UNHELD = " stays NOT VALID: "


@dataclass(frozen=True)
class UnvalidatedKey:
    """A foreign key by what the source calls it; ``owner`` and ``refers_to`` are oids there."""

    owner: int
    name: str
    refers_to: int
    schema: str
    table: str
    actual: str

    @property
    def ends(self) -> frozenset[int]:
        """The tables at both ends."""
        return frozenset((self.owner, self.refers_to))


def unvalidated_keys(conn: Connection, pipeline: str) -> list[UnvalidatedKey]:
    """All of them, also those that are not valid in the source either."""
    return [UnvalidatedKey(*row) for row in conn.execute(_UNVALIDATED, [pipeline])]


def validate(conn: Connection, schema: str, table: str, name: str) -> str | None:
    """Validate a foreign key; a note where it does not hold."""
    statement = sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(
        sql.Identifier(schema, table), sql.Identifier(name)
    )
    try:
        with conn.transaction():
            conn.execute(statement)
    except psycopg.Error as error:
        if is_passing(error):
            raise
        return f"{schema}.{table}: the foreign key {name}{_UNHELD}{said(error)}"
    return None


def is_of_validity(note: str) -> bool:
    """Whether it is one that ``validate`` gives."""
    return _UNHELD in note


def is_loose(key: ConstraintDefinition) -> bool:
    """Whether the source itself does not vouch for it."""
    return key.definition.endswith(" NOT VALID")


class TargetObjects:
    """Makes and drops them, one transaction or savepoint each."""

    def __init__(self, conn: Connection, pipeline: str) -> None:
        self._conn = conn
        self._pipeline = pipeline
        self.notes: list[str] = []
        """What could not be made, and why."""
        self.unheld: dict[str, str] = {}
        """Foreign keys that do not hold now, with what there is to say of them where both of their
        tables stand at one point.
        """

    def make(self, source: int, wanted: TableDefinition) -> None:
        """All but the foreign keys. ``wanted`` is the table as it should be over here."""
        made = self._made(source)
        for index in wanted.indexes:
            if ("index", index.name) not in made and not _is_key(index, wanted):
                self._make_index(source, wanted, index)
        for constraint in wanted.constraints:
            if (
                constraint.kind != "foreign"
                and ("constraint", constraint.name) not in made
                and not _is_key(constraint, wanted)
            ):
                self._make_constraint(source, wanted, constraint)

    def make_foreign_keys(
        self, source: int, wanted: TableDefinition, complete: Collection[tuple[str, str]]
    ) -> None:
        """Those of one table that refer to a target that is ``complete``, as it is itself."""
        keys = [key for key in wanted.constraints if key.references in complete]
        made = self._made(source) if keys else set()
        for key in keys:
            if ("constraint", key.name) not in made:
                self._make_foreign_key(source, wanted, key)

    def drop(self, source: int, target: int, wanted: TableDefinition) -> None:
        """All that we made on a target, and the foreign keys that we made and that refer to it."""
        for owner, name, schema, table, actual in self._conn.execute(
            _REFERRING, [self._pipeline, target]
        ).fetchall():
            statement = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(
                sql.Identifier(schema, table), sql.Identifier(actual)
            )
            self._drop(owner, "constraint", name, statement)
        table_name = sql.Identifier(wanted.schema, wanted.name)
        for kind, name, actual in self._conn.execute(
            "SELECT kind, source_name, name FROM penstock.target_object WHERE pipeline = %s"
            " AND source_table = %s ORDER BY kind",
            [self._pipeline, source],
        ).fetchall():
            if kind == "index":
                statement = sql.SQL("DROP INDEX IF EXISTS {}").format(
                    sql.Identifier(wanted.schema, actual)
                )
            else:
                statement = sql.SQL("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}").format(
                    table_name, sql.Identifier(actual)
                )
            self._drop(source, kind, name, statement)

    def _drop(self, source: int, kind: str, name: str, statement: sql.Composed) -> None:
        try:
            with self._conn.transaction():
                self._conn.execute(statement)
                self._conn.execute(
                    "DELETE FROM penstock.target_object WHERE pipeline = %s AND source_table = %s"
                    " AND kind = %s AND source_name = %s",
                    [self._pipeline, source, kind, name],
                )
        except errors.DependentObjectsStillExist:
            # Somebody else's foreign key needs it: it stays.
            return

    def _made(self, source: int) -> set[tuple[str, str]]:
        found = self._conn.execute(
            "SELECT kind, source_name FROM penstock.target_object"
            " WHERE pipeline = %s AND source_table = %s",
            [self._pipeline, source],
        )
        return {(kind, name) for kind, name in found}

    def _make_index(self, source: int, wanted: TableDefinition, index: IndexDefinition) -> None:
        name = self._free_name(wanted.schema, index.name)
        statement = sql.SQL("CREATE {}INDEX {} ON {} {}").format(
            sql.SQL("UNIQUE " if index.is_unique else ""),
            sql.Identifier(name),
            sql.Identifier(wanted.schema, wanted.name),
            # As the source's server wrote it.
            sql.SQL(index.definition),
        )
        self._attempt(source, wanted, "index", index.name, name, [statement])

    def _make_constraint(
        self, source: int, wanted: TableDefinition, constraint: ConstraintDefinition
    ) -> None:
        name = constraint.name
        if constraint.kind != "check":
            # It brings an index of the same name.
            name = self._free_name(wanted.schema, name)
        statement = _add(wanted, name, constraint.definition)
        self._attempt(source, wanted, "constraint", constraint.name, name, [statement])

    def _make_foreign_key(
        self, source: int, wanted: TableDefinition, key: ConstraintDefinition
    ) -> None:
        loose = key.definition if is_loose(key) else f"{key.definition} NOT VALID"
        lock = sql.SQL(
            "SELECT FROM penstock.progress WHERE pipeline = {} FOR SHARE"
        ).format(sql.Literal(self._pipeline))  # fmt: skip
        # The lock first, as commits do: both take locks of several targets.
        statements = [lock, _add(wanted, key.name, loose)]
        if not self._attempt(source, wanted, "constraint", key.name, key.name, statements):
            return
        if is_loose(key):
            return
        # Apart, since it reads the whole table and must not hold up commits meanwhile.
        note = validate(self._conn, wanted.schema, wanted.name, key.name)
        if note is not None:
            self.unheld[key.name] = note

    def _attempt(
        self,
        source: int,
        wanted: TableDefinition,
        kind: str,
        source_name: str,
        name: str,
        statements: Iterable[sql.Composed],
    ) -> bool:
        try:
            with self._conn.transaction():
                for statement in statements:
                    run(self._conn, statement)
                self._conn.execute(
                    "INSERT INTO penstock.target_object VALUES (%s, %s, %s, %s, %s)",
                    [self._pipeline, source, kind, source_name, name],
                )
        except psycopg.Error as error:
            if is_passing(error):
                raise
            self.notes.append(
                f"{wanted.qualified_name} goes without the {kind} {source_name}: {said(error)}"
            )
            return False
        return True

    def _free_name(self, schema: str, wanted: str) -> str:
        """The name, or one like it where somebody else's index or table has it."""
        names = [wanted, *(numbered_name(wanted, number) for number in range(1, _FREE_NAMES))]
        taken = self._conn.execute(
            "SELECT relname::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = %s AND relname = ANY(%s)",
            [schema, names],
        )
        there = {name for (name,) in taken}
        return next((name for name in names if name not in there), wanted)


def _add(wanted: TableDefinition, name: str, definition: str) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
        sql.Identifier(wanted.schema, wanted.name), sql.Identifier(name), sql.SQL(definition)
    )


def _is_key(made: IndexDefinition | ConstraintDefinition, wanted: TableDefinition) -> bool:
    """Whether it is what rows are found by, which is there already."""
    return bool(made.key) and set(made.key) == set(wanted.merge_key)
