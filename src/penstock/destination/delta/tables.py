"""Makes and changes Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.destination.delta.commits import PipelineCommits, number_of
from penstock.destination.delta.delta_rs import delta_rs
from penstock.destination.delta.places import CONFIGURATION, DeltaPlace
from penstock.destination.families.staged_merge.altered_columns import RetypedColumns
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, EngineTypes
from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

TYPES = EngineTypes(has_time=False, has_uuid=False, has_unsigned=False, is_endless=False)


def arrow_schema(target: Target) -> pa.Schema:
    types = [TYPES.arrow(plain) for plain in target.types]
    return pa.schema(list(zip(target.columns, types, strict=True)))


def create_table(folder: DeltaPlace, target: Target, commits: PipelineCommits) -> None:
    """Make a table, or take one that is there with the same columns. Raises TableRefused."""
    module = delta_rs()
    if not target.columns:
        raise TableRefused(
            f"table {target.qualified_name} has no columns, and a Delta table needs one",
            remedy="leave it out of source.tables",
            table=target.oid,
        )
    if len({name.casefold() for name in target.columns}) < len(target.columns):
        raise TableRefused(
            f"table {target.qualified_name} has columns whose names differ in nothing but case, "
            "which are the same to a Delta table",
            remedy="leave one of them out by the pipeline's filter, or rename it at the source",
            table=target.oid,
        )
    table = folder.found()
    if table is None:
        folder.create(
            schema=arrow_schema(target),
            commit_properties=commits.properties({"oid": target.oid}),
        )
        return
    wanted = module.Schema.from_arrow(arrow_schema(target))
    there = commits.expect_current(table).schema()
    if {field.name: field.type for field in there.fields} != {
        field.name: field.type for field in wanted.fields
    }:
        raise TableRefused(
            f"table {target.qualified_name}: {folder} is there already, with other columns: "
            f"{', '.join(field.name for field in there.fields)}",
            remedy=f"move it away, then run `penstock tables retry` for {target.qualified_name}",
            table=target.oid,
        )
    if not commits.is_there(folder, target.oid):
        commits.sign(table, target.oid)


class DeltaAlteration:
    """Lets a table follow a schema change. Called again after a crash in it, it does nothing twice.

    New columns without a value for older rows are a change of the table's metadata. For all else
    (names, types, columns that go, values for older rows) the rows are written anew, in one commit,
    piece by piece: delta-rs does not write column mapping.
    """

    def __init__(
        self,
        root: DeltaPlace,
        change: TableChange,
        before: Target,
        after: Target,
        typing: ColumnTyping,
        commits: PipelineCommits,
    ) -> None:
        self._root = root
        self._before = before
        self._after = after
        self._commits = commits
        self._columns = RetypedColumns(change, before, after, typing)

    def run(self) -> None:
        """Raises TableRefused where the table is gone, or its new name is another one's."""
        old, folder = (self._root.of(each) for each in (self._before, self._after))
        with self._commits.explained(folder):
            self._move(old, folder)
        with self._commits.explained(folder):
            table = self._commits.table(folder)
            number = number_of(self._before.to_text(), self._after.to_text())
            if self._commits.read(table, "shape") == number:
                return
            self._change(table, folder, self._commits.properties({"shape": number}))

    def _move(self, old: DeltaPlace, folder: DeltaPlace) -> None:
        oid, name = self._after.oid, self._after.qualified_name
        if old == folder:
            return
        if self._commits.is_there(folder, oid):
            if self._commits.is_there(old, oid):
                old.remove()  # whoever carried it over died before that
            return
        if folder.exists():
            raise TableRefused(
                f"table {self._before.qualified_name} was renamed to {name}, and {folder} is there "
                "already",
                remedy=f"move it away, then run `penstock tables retry` for {name}",
                table=oid,
            )
        if self._commits.find(old, oid) is None:
            raise TableRefused(
                f"table {name}: it is not in {old} any more",
                remedy=f"run `penstock tables resync` for {name}, which copies it anew",
                table=oid,
            )
        if not old.move(folder):
            self._carry_over(old, folder)

    def _carry_over(self, old: DeltaPlace, folder: DeltaPlace) -> None:
        """Where nothing is renamed the rows are written anew, in one commit with all marks."""
        table, schema = self._commits.table(old), arrow_schema(self._before)
        delta_rs().write_deltalake(
            folder.url,
            pa.RecordBatchReader.from_batches(schema, old.batches(table, schema)),
            mode="error",
            storage_options=folder.storage_options,
            configuration=CONFIGURATION,
            commit_properties=self._commits.properties(self._commits.all_of(table)),
        )
        old.remove()

    def _change(self, table: DeltaTable, folder: DeltaPlace, properties: CommitProperties) -> None:
        before, after = arrow_schema(self._before), arrow_schema(self._after)
        new = [field for field in after if field not in list(before)]
        is_longer = not self._columns.filled and all(
            self._columns.kept.get(field.name) == field.name and field in list(after)
            for field in before
        )
        module = delta_rs()
        if is_longer:
            # In another order, perhaps: columns are found by their names.
            if new:
                fields = module.Schema.from_arrow(pa.schema(new)).fields
                table.alter.add_columns(fields, commit_properties=properties)
            return
        there = folder.batches(table, before)
        rows = pa.RecordBatchReader.from_batches(after, self._pieces(there, after))
        module.write_deltalake(
            table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties
        )

    def _pieces(
        self, there: Iterator[pa.RecordBatch], after: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for piece in there:
            yield pa.RecordBatch.from_arrays(self._columns.of(piece, after), schema=after)
