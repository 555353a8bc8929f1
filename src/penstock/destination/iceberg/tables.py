"""Makes and changes Iceberg tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from penstock.destination.families.staged_merge.altered_columns import RetypedColumns
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping
from penstock.destination.families.target import Target
from penstock.destination.iceberg.catalog import Identifier, TableCatalog, identifier_of
from penstock.destination.iceberg.columns import (
    arrow_schema,
    arrow_types,
    field_ids,
    iceberg_schema,
    is_widened,
    names_of,
    next_id,
    numbers_of,
)
from penstock.destination.iceberg.commits import IcebergCommits, digest
from penstock.destination.iceberg.partitions import partition_spec
from penstock.destination.iceberg.rewriting import rewritten
from penstock.destination.iceberg.snapshots import Change, entries_of
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition

_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def make_table(tables: TableCatalog, identifier: Identifier) -> Table:
    """A table without columns, or the one that is there."""
    found = tables.find(identifier)
    if found is not None:
        return found
    catalog, (namespace, _) = tables.catalog, identifier
    with suppress(NamespaceAlreadyExistsError):  # somebody was faster
        catalog.create_namespace_if_not_exists((namespace,))
    location = tables.location(identifier)
    try:
        return catalog.create_table(identifier, Schema(), location, properties=_PROPERTIES)
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)


def create_table(
    commits: IcebergCommits, definition: TableDefinition, target: Target, partition: Sequence[str]
) -> None:
    """Make a table, partitioned as is said, or take one that is there with the same columns.
    Raises TableRefused.
    """
    _expect_fit(target)
    table = make_table(commits.tables, identifier_of(target))
    wanted = iceberg_schema(target, numbers_of(definition, target))
    there = {field.name: field.field_type for field in table.schema().fields}
    if not there:
        spec = partition_spec(target, wanted, partition) if partition else None
        state = replace(commits.state(table), oid=target.oid)
        commits.commit(table, Change(schema=wanted, spec=spec), state)
        return
    ids = field_ids(table.schema())
    if sorted(there) != sorted(names_of(target)) or any(
        there[field.name] != field.field_type for field in iceberg_schema(target, ids).fields
    ):
        raise TableRefused(
            f"table {target.qualified_name}: there is an Iceberg table of that name already, with "
            f"other columns: {', '.join(there)}",
            remedy="rename or drop it, then run `penstock tables retry` for "
            f"{target.qualified_name}",
            table=target.oid,
        )
    if commits.state(table).oid != target.oid:
        commits.sign(table, target.oid)


def _expect_fit(target: Target) -> None:
    if len({name.casefold() for name in target.columns}) < len(target.columns):
        raise TableRefused(
            f"table {target.qualified_name} has columns whose names differ in nothing but case, "
            "which are the same to most readers of Iceberg tables",
            remedy="leave one of them out by the pipeline's filter, or rename it at the source",
            table=target.oid,
        )
    types = arrow_types(target)
    if any(pa.types.is_nested(types[index]) for index in target.key):
        raise TableRefused(
            f"table {target.qualified_name} has an array in its key, which Iceberg cannot tell "
            "rows apart by",
            remedy="leave the table out of source.tables, or give it another replica identity",
            table=target.oid,
        )


class IcebergAlteration:
    """Lets a table follow a schema change. Called again after a crash in it, it does nothing twice.

    New columns, columns that go, other names and wider types are a change of the table's metadata.
    For other types, and for values of new columns in older rows, the rows are written anew.
    """

    def __init__(
        self,
        commits: IcebergCommits,
        change: TableChange,
        before: Target,
        after: Target,
        typing: ColumnTyping,
    ) -> None:
        self._commits = commits
        self._change = change
        self._before = before
        self._after = after
        self._columns = RetypedColumns(change, before, after, typing)

    def run(self) -> None:
        """Raises TableRefused where the table is gone, or its new name is another one's."""
        _expect_fit(self._after)
        old, new = identifier_of(self._before), identifier_of(self._after)
        self._rename(old, new)
        table = self._commits.table(new)
        state = self._commits.state(table)
        shape = digest(self._before.to_text(), self._after.to_text())
        if state.shape == shape:
            return
        change = self._altered(table)
        if change is not None:
            self._commits.commit(table, change, replace(state, shape=shape))

    def _rename(self, old: Identifier, new: Identifier) -> None:
        oid, name = self._after.oid, self._after.qualified_name
        if old == new or self._commits.is_there(new, oid):
            return
        tables = self._commits.tables
        if tables.find(new) is not None:
            raise TableRefused(
                f"table {self._before.qualified_name} was renamed to {name}, and there is an "
                "Iceberg table of that name already",
                remedy=f"rename or drop it, then run `penstock tables retry` for {name}",
                table=oid,
            )
        if self._commits.own(old, oid) is None:
            raise self._commits.gone(old)
        tables.catalog.create_namespace_if_not_exists((new[0],))
        tables.catalog.rename_table(old, new)

    def _altered(self, table: Table) -> Change | None:
        there = table.schema()
        schema = iceberg_schema(self._after, self._ids(table))
        if schema.fields == there.fields:
            return None
        ids = {field.field_id for field in schema.fields}
        self._expect_partitioned(table, ids)
        kept = {field.field_id for field in there.fields} & ids
        is_anew = bool(self._columns.filled) or any(
            there.find_field(old).field_id not in kept for old in self._columns.kept.values()
        )
        if is_anew or self._has_other_deletes(table, ids):
            after = arrow_schema(schema)
            return rewritten(
                table, schema, lambda rows: pa.table(self._columns.of(rows, after), schema=after)
            )
        return Change(schema=schema)

    def _expect_partitioned(self, table: Table, ids: set[int]) -> None:
        """A column that partitions a table cannot go, nor become of a type that is another one."""
        for field in table.spec().fields:
            if field.source_id not in ids:
                name = self._after.qualified_name
                raise TableRefused(
                    f"table {name} is partitioned by column "
                    f"{table.schema().find_column_name(field.source_id)}, which is dropped, or of "
                    "another type",
                    remedy="drop the Iceberg table, correct destination.partition in the pipeline "
                    f"file, then run `penstock tables resync` for {name}",
                    table=self._after.oid,
                )

    def _ids(self, table: Table) -> dict[str, int]:
        """The field id of each column: what it had, or one that no column ever had."""
        there = table.schema()
        assert self._change.after is not None  # noqa: S101
        numbers = numbers_of(self._change.after, self._after)
        used = {field.field_id for schema in table.metadata.schemas for field in schema.fields}
        wanted = iceberg_schema(self._after, numbers)
        found = {}
        for field in wanted.fields:
            old = self._columns.kept.get(field.name)
            number = field.field_id
            if old is not None:
                before = there.find_field(old)
                if is_widened(before.field_type, field.field_type):
                    found[field.name] = before.field_id
                    continue
                number = before.field_id
            while number in used:
                number = next_id(number)
            found[field.name] = number
        return found

    def _has_other_deletes(self, table: Table, ids: set[int]) -> bool:
        """Whether deletes name columns that go: not every reader would find these."""
        return any(
            not ids.issuperset(entry.data_file.equality_ids or ()) for entry in entries_of(table)
        )
