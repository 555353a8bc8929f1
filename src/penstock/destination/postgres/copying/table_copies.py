"""The driver's side of copies: what is done with a target before, between and after its chunks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import psycopg
from psycopg import errors, sql

from penstock.destination.postgres.copying import parked_keys
from penstock.destination.postgres.copying.copied_rows import copy_refusal
from penstock.destination.postgres.sessions.session import (
    Connection,
    destination_errors,
    is_refusal,
    said,
)
from penstock.destination.postgres.sessions.session_pool import SessionPool
from penstock.destination.postgres.staging.stage import Stage, drop_stages
from penstock.destination.postgres.targets import target_record
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.destination.postgres.targets.target_keys import drop_keys, make_key, make_primary_key
from penstock.destination.postgres.targets.target_objects import (
    TargetObjects,
    UnvalidatedKey,
    is_loose,
    is_of_validity,
    unvalidated_keys,
    validate,
)
from penstock.destination.postgres.targets.target_record import TargetRecord, read_records
from penstock.destination.postgres.targets.target_sequences import advance_sequences
from penstock.destination.postgres.targets.target_table import TargetTable, wanted_targets
from penstock.destination.postgres.whole_schema.whole_schema import WholeSchema
from penstock.failpoints import failpoint
from penstock.model.errors import (
    DestinationError,
    DestinationUnavailable,
    Fenced,
    TableRefused,
)
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows

_log = logging.getLogger(__name__)


class TableCopies:
    """Every call has a session of its own, so that commits may go on meanwhile."""

    def __init__(
        self,
        pool: SessionPool,
        pipeline: str,
        names: TableNames,
        epoch: Callable[[], int],
        *,
        has_history: bool,
    ) -> None:
        """``epoch`` tells which driver we are; ``has_history``: targets keep every change."""
        self.whole: WholeSchema | None = None
        self._pool = pool
        self._pipeline = pipeline
        self._names = names
        self._epoch = epoch
        self._has_history = has_history
        self._followed: Mapping[int, TableDefinition] = {}
        self._notes: dict[int, tuple[str, ...]] = {}
        self._unheld: Mapping[UnvalidatedKey, str] = {}

    def prepared(
        self,
        conn: Connection,
        definitions: Sequence[TableDefinition],
        targets: Sequence[TargetTable],
        *,
        is_new: bool,
    ) -> None:
        """Take up targets that were just prepared, in the same transaction. What was created now
        gets its indexes and constraints; a copy takes them away again.
        """
        self._followed = {**self._followed, **{table.oid: table for table in definitions}}
        target_record.record_targets(conn, self._pipeline, targets, is_new=is_new)
        created = [target.source_oid for target in targets if target.created]
        if self._has_history or not created:
            return
        wanted = self._wanted(conn, created)
        for source in created:
            objects = TargetObjects(conn, self._pipeline)
            objects.make(source, wanted[source])
            self._note(source, objects)
        # When all of them have their keys.
        objects = TargetObjects(conn, self._pipeline)
        self._make_foreign_keys(conn, objects, wanted)
        self._note(created[0], objects)

    def notes(self, table: int) -> tuple[str, ...]:
        """Which indexes and constraints of a table could not be made, and why."""
        unheld = [note for key, note in self._unheld.items() if key.owner == table]
        return (*self._notes.get(table, ()), *unheld)

    def is_outdated(self, table: int, note: str) -> bool:
        """Whether it says of a foreign key what ``complete_together`` did not find."""
        return is_of_validity(note) and note not in self.notes(table)

    def note_changes(self, tables: Sequence[int], notes: Sequence[str]) -> None:
        """Keep what could not be made of a schema change."""
        for oid in tables:
            self._notes[oid] = (*self._notes.get(oid, ()), *notes)

    # -- around a copy ---------------------------------------------------------------------------

    def has_foreign_rows(self, target: TargetTable) -> bool:
        """Whether a target holds rows that Penstock never wrote."""
        with self._pool.session() as conn, destination_errors("looking for rows"):
            record = self._record(conn, target.source_oid)
            return (
                record.foreign_rows
                and not target_record.has_chunks(conn, self._pipeline, target.source_oid)
                and target_record.has_rows(conn, target)
            )

    def has_chunks(self, table: int) -> bool:
        """Whether chunks of the table were written, since it is the one that it is."""
        with self._pool.session() as conn, destination_errors("looking for copied chunks"):
            return target_record.has_chunks(conn, self._pipeline, table)

    def truncate(self, table: TableDefinition, target: TargetTable) -> None:
        with (
            self._pool.session() as conn,
            destination_errors(f"emptying {target.qualified_name}"),
            conn.transaction(),
        ):
            # Before commits are held up: it waits for chunks that are being written.
            target_record.begin_copy(conn, self._pipeline, table.oid)
            self.hold(conn)
            if self._has_history:
                return
            if self._record(conn, table.oid).created:
                (wanted,) = wanted_targets(conn, [table], self._names)
                TargetObjects(conn, self._pipeline).drop(table.oid, target.oid, wanted)
                drop_keys(conn, target.oid, wanted)
            _empty(conn, table, target)
        failpoint("postgres.copy_truncated")

    def begin_chunks(self, table: TableDefinition, target: TargetTable, *, again: bool) -> int:
        """Which copy of the table the chunks to come belong to. With ``again`` rows are found by
        the key, which has to be there then.
        """
        with self._pool.session() as conn, destination_errors("beginning a copy"):
            record = self._record(conn, table.oid)
            if again and record.created and not self._has_history:
                self._make_key(conn, table, target)
            return record.copy

    def finish(self, table: TableDefinition, target: TargetTable) -> None:
        with (
            self._pool.session() as conn,
            destination_errors(f"finishing the copy of {table.qualified_name}"),
        ):
            self.check(conn)
            if self._record(conn, table.oid).created and not self._has_history:
                self._make_key(conn, table, target)
            # New statistics: without them the first batches would be planned for an empty table.
            conn.execute(
                sql.SQL("ANALYZE {}").format(sql.Identifier(target.schema, target.name)),
            )
            advance_sequences(conn, [target])

    def complete(self, table: TableDefinition, catchup: Stage) -> None:
        """Make indexes and constraints, and drop the staging table that only a copy needs."""
        with (
            self._pool.session() as conn,
            destination_errors(f"completing {table.qualified_name}"),
        ):
            self.check(conn)
            record = self._record(conn, table.oid)
            self._followed = {**self._followed, table.oid: table}
            self._notes.pop(table.oid, None)
            self._unheld = {k: note for k, note in self._unheld.items() if table.oid not in k.ends}
            if not self._has_history:
                objects = TargetObjects(conn, self._pipeline)
                (wanted,) = wanted_targets(conn, [table], self._names)
                if record.created:
                    if self.whole is not None:
                        # First, for what it makes has the source's names.
                        objects.notes += self.whole.make_indexes(conn, table, record.target)
                    make_key(conn, record.target, wanted)
                    make_primary_key(conn, record.target, wanted)
                    objects.make(table.oid, wanted)
                    if self.whole is not None:
                        self.whole.comment(conn, table)
                target_record.set_complete(conn, self._pipeline, table.oid)
                referring = self._wanted(conn, self._referring(table))
                self._make_foreign_keys(conn, objects, {table.oid: wanted, **referring})
                self._note(table.oid, objects)
            drop_stages(conn, [catchup])

    def complete_together(self, tables: Collection[int], new: Collection[int]) -> None:
        """Validate the foreign keys between these tables that did not hold before.

        One that does not hold now either is not tried again before one of its tables is ``new``.
        """
        if self._has_history:
            return
        with self._pool.session() as conn, destination_errors("validating foreign keys"):
            self.check(conn)
            found = [key for key in self._wanted_valid(conn) if key.ends.issubset(tables)]
            unheld = {}
            for key in found:
                note = self._unheld.get(key)
                if note is None or not key.ends.isdisjoint(new):
                    note = validate(conn, key.schema, key.table, key.actual)
                if note is not None:
                    unheld[key] = note
            # One may have gone meanwhile.
            left = set(self._wanted_valid(conn)) if unheld else set()
        for oid in tables:
            if notes := self._notes.get(oid):
                self._notes[oid] = tuple(note for note in notes if not is_of_validity(note))
        self._unheld = {key: note for key, note in unheld.items() if key in left}

    def _wanted_valid(self, conn: Connection) -> list[UnvalidatedKey]:
        """Foreign keys that are not validated, though those of the source are."""
        valid = {
            (oid, key.name)
            for oid, table in self._followed.items()
            for key in table.constraints
            if key.kind == "foreign" and not is_loose(key)
        }
        return [
            key for key in unvalidated_keys(conn, self._pipeline) if (key.owner, key.name) in valid
        ]

    def drop(self, table: TableDefinition, target: TargetTable, stages: Sequence[Stage]) -> None:
        with (
            self._pool.session() as conn,
            destination_errors(f"dropping {target.qualified_name}"),
            conn.transaction(),
        ):
            target_record.begin_copy(conn, self._pipeline, table.oid)
            self.hold(conn)
            (wanted,) = wanted_targets(conn, [table], self._names)
            TargetObjects(conn, self._pipeline).drop(table.oid, target.oid, wanted)
            name = sql.Identifier(target.schema, target.name)
            try:
                conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
            except errors.DependentObjectsStillExist as error:
                raise DestinationError(
                    f"table {target.qualified_name} was not dropped at the destination: "
                    f"{said(error)}",
                    remedy="drop what depends on it, or set source.tables.on_remove to keep",
                ) from error
            drop_stages(conn, stages)
            target_record.forget_target(conn, self._pipeline, table.oid)
        self._followed = {oid: t for oid, t in self._followed.items() if oid != table.oid}

    # -- parked keys -----------------------------------------------------------------------------

    def parked(self, table: int) -> tuple[parked_keys.Key, ...]:
        with self._pool.session() as conn, destination_errors("reading parked keys"):
            return tuple(parked_keys.read_parked(conn, self._pipeline, table))

    def settle(
        self,
        stage: Stage,
        rows: TableRows,
        keys: Sequence[parked_keys.Key],
        letters_of: str | None,
    ) -> None:
        with self._pool.session() as conn, destination_errors("settling parked keys"):
            try:
                with conn.transaction():
                    self.hold(conn)
                    parked_keys.settle(conn, self._pipeline, stage, rows, keys, letters_of)
            except psycopg.Error as error:
                if not is_refusal(error):
                    raise
                what = "those that were read again"
                raise copy_refusal(stage, what, rows.snapshot, error) from error

    # -- what they share -------------------------------------------------------------------------

    def _record(self, conn: Connection, table: int) -> TargetRecord:
        record = read_records(conn, self._pipeline, table).get(table)
        if record is None:
            raise DestinationError(
                f"the destination knows no table with oid {table} of pipeline {self._pipeline}",
                remedy="start `penstock run` again, which prepares all tables",
            )
        return record

    def hold(self, conn: Connection) -> None:
        """First of all locks, as in a commit: no commit is under way until the transaction ends."""
        self.check(conn, " FOR SHARE")

    def check(self, conn: Connection, lock: str = "") -> None:
        """Raises Fenced, or DestinationUnavailable, where this driver is not the one."""
        row = conn.execute(
            f"SELECT epoch FROM penstock.progress WHERE pipeline = %s{lock}".encode(),  # noqa: S608
            [self._pipeline],
        ).fetchone()
        if row is None or row[0] < self._epoch():
            raise DestinationUnavailable(
                f"destination postgres: the server has forgotten pipeline {self._pipeline}'s driver"
            )
        if row[0] > self._epoch():
            raise Fenced(
                f"destination postgres: another driver of pipeline {self._pipeline} has taken over",
                remedy="stop this one; the other goes on where it stood",
            )

    def _wanted(self, conn: Connection, tables: Sequence[int]) -> dict[int, TableDefinition]:
        """Some of the tables that are followed, as they should be over here."""
        followed = self._followed
        wanted = wanted_targets(conn, [followed[oid] for oid in tables], self._names)
        return dict(zip(tables, wanted, strict=True))

    def _referring(self, table: TableDefinition) -> list[int]:
        """Other tables with a foreign key to this one."""
        name = (table.schema, table.name)
        return [
            oid
            for oid, other in self._followed.items()
            if oid != table.oid and any(key.references == name for key in other.constraints)
        ]

    def _make_key(self, conn: Connection, table: TableDefinition, target: TargetTable) -> None:
        (wanted,) = wanted_targets(conn, [table], self._names)
        if self.whole is not None:
            self.whole.make_key(conn, table)
        try:
            make_key(conn, target.oid, wanted)
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            raise TableRefused(
                f"table {table.qualified_name}: the destination cannot make its key after the "
                f"copy: {said(error)}",
                remedy=f"run `penstock tables resync` for {table.qualified_name}, which copies it "
                "anew",
                table=table.oid,
            ) from error

    def _make_foreign_keys(
        self, conn: Connection, objects: TargetObjects, tables: Mapping[int, TableDefinition]
    ) -> None:
        """Those of the given tables, as far as we made the table and both ends are complete."""
        tables = {
            oid: wanted
            for oid, wanted in tables.items()
            if any(constraint.kind == "foreign" for constraint in wanted.constraints)
            # Those of partitioned tables cannot be NOT VALID: they come with the rest.
            and not (self.whole is not None and wanted.partitions)
        }
        if not tables:
            return
        if conn.execute("SHOW session_replication_role").fetchone() != ("replica",):
            names = ", ".join(sorted(wanted.qualified_name for wanted in tables.values()))
            objects.notes.append(
                f"{names}: foreign keys are not made, since triggers stay on while rows are "
                "applied, and every statement of a batch would have to keep them"
            )
            return
        records = read_records(conn, self._pipeline)
        ready = {oid for oid, record in records.items() if record.complete}
        complete = {
            self._names.target(table.schema, table.name)
            for oid, table in self._followed.items()
            if oid in ready
        }
        for oid, wanted in tables.items():
            if oid in ready and records[oid].created:
                objects.make_foreign_keys(oid, wanted, complete)

    def _note(self, table: int, objects: TargetObjects) -> None:
        self._notes[table] = (*self._notes.get(table, ()), *objects.notes)
        for note in objects.notes:
            _log.warning("destination postgres: %s", note)


def _empty(conn: Connection, table: TableDefinition, target: TargetTable) -> None:
    name = sql.Identifier(target.schema, target.name)
    try:
        with conn.transaction():
            conn.execute(sql.SQL("TRUNCATE {}").format(name))
        return
    except errors.FeatureNotSupported:
        pass  # a table that we do not follow refers to it by a foreign key
    try:
        conn.execute(sql.SQL("DELETE FROM {}").format(name))
    except psycopg.Error as error:
        if not is_refusal(error):
            raise
        raise TableRefused(
            f"table {table.qualified_name}: the target {target.qualified_name} cannot be emptied "
            f"for its copy: {said(error)}",
            remedy="remove what refers to its rows, then run `penstock tables retry` for "
            f"{table.qualified_name}",
            table=table.oid,
        ) from error
