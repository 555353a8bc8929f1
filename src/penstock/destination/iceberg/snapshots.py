"""One commit to a table: a snapshot, with its manifests and what a pipeline has to know of it.

pyiceberg has no commit that adds rows and deletes at once, and what it writes of deletes other
engines read wrongly: as data, with ids of another type. So manifests are written here, with its
writers, and the catalogue is told by its own call. A commit that does not follow on the snapshot
that was seen is refused by the catalogue.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

_VERSION: Final = 2
_CODEC: Final = "deflate"


class _DeleteManifestWriter(ManifestWriterV2):
    """A manifest of delete files, with ids of columns as the specification has them."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def _with_partition(self, format_version: int) -> Schema:
        found = super()._with_partition(format_version)  # type: ignore[arg-type]
        return Schema(*(_with_short_ids(field) for field in found.fields))


def _with_short_ids(field: NestedField) -> NestedField:
    kind = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*(_with_short_ids(each) for each in kind.fields))
    elif isinstance(kind, ListType) and field.name == "equality_ids":
        kind = ListType(kind.element_id, IntegerType(), element_required=True)
    return NestedField(field.field_id, field.name, kind, required=field.required)


@dataclass(frozen=True)
class Change:
    """What a commit does to a table. ``removed`` are paths of files that it has no longer."""

    added: Sequence[DataFile] = ()
    removed: Collection[str] = ()
    replaces: bool = False
    """The rows stay what they are."""
    schema: Schema | None = None
    spec: PartitionSpec | None = None
    """How a table is partitioned from now on."""


def entries_of(table: Table) -> list[ManifestEntry]:
    """All files of a table as it is now."""
    snapshot = table.current_snapshot()
    return [] if snapshot is None else _entries(table, snapshot.manifests(table.io))


def _entries(table: Table, manifests: Sequence[ManifestFile]) -> list[ManifestEntry]:
    return [entry for each in manifests for entry in each.fetch_manifest_entry(table.io)]


def commit(
    table: Table, change: Change, summary: Mapping[str, str], properties: Mapping[str, str]
) -> int:
    """Make a snapshot, with new properties of the table; its id.

    Raises CommitFailedException where another snapshot is the last one by now.
    """
    return _Commit(table, change).run(summary, properties)


class _Commit:
    def __init__(self, table: Table, change: Change) -> None:
        self._table = table
        self._change = change
        self._parent = table.current_snapshot()
        self._id = table.metadata.new_snapshot_id()
        self._schema = change.schema or table.schema()
        self._folder = f"{table.location().rstrip('/')}/metadata"
        self._removed: list[DataFile] = []

    def run(self, summary: Mapping[str, str], properties: Mapping[str, str]) -> int:
        table, parent = self._table, self._parent
        parent_id = None if parent is None else parent.snapshot_id
        updates: list[TableUpdate] = []
        schema_id = table.metadata.current_schema_id
        if self._change.schema is not None:
            schema_id = max(schema.schema_id for schema in table.metadata.schemas) + 1
            schema = Schema(*self._change.schema.fields, schema_id=schema_id)
            updates += [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate()]
        if self._change.spec is not None:
            updates += [AddPartitionSpecUpdate(spec=self._change.spec), SetDefaultSpecUpdate()]
        manifests = self._manifests()
        sequence = table.metadata.next_sequence_number()
        path = f"{self._folder}/snap-{self._id}-0-{uuid.uuid4()}.avro"
        with write_manifest_list(
            format_version=_VERSION,
            output_file=table.io.new_output(path),
            snapshot_id=self._id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence,
            avro_compression=_CODEC,
        ) as writer:
            writer.add_manifests(manifests)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": self._id,
                "parent-snapshot-id": parent_id,
                "manifest-list": path,
                "sequence-number": sequence,
                "summary": self._summary(summary),
                "schema-id": schema_id,
            }
        )
        branch = {"ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": self._id}
        updates += [
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate.model_validate(branch),
            SetPropertiesUpdate(updates=dict(properties)),
        ]
        send(table, updates)
        return self._id

    def _manifests(self) -> list[ManifestFile]:
        change = self._change
        kept = [] if self._parent is None else self._parent.manifests(self._table.io)
        # A manifest is of one kind and one spec.
        found: dict[tuple[bool, int], list[tuple[ManifestEntryStatus, ManifestEntry]]] = {}
        for file in change.added:
            entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file)
            found.setdefault(_kind(file), []).append((ManifestEntryStatus.ADDED, entry))
        if change.removed:
            # All of them are written anew, so that there are few.
            for entry in _entries(self._table, kept):
                is_removed = entry.data_file.file_path in change.removed
                status = ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING
                found.setdefault(_kind(entry.data_file), []).append((status, entry))
                if is_removed:
                    self._removed.append(entry.data_file)
            kept = []
        new = [self._manifest(entries, *kind) for kind, entries in found.items()]
        return new + kept

    def _manifest(
        self,
        entries: Sequence[tuple[ManifestEntryStatus, ManifestEntry]],
        deletes: bool,
        spec_id: int,
    ) -> ManifestFile:
        kind = _DeleteManifestWriter if deletes else ManifestWriterV2
        spec: PartitionSpec = self._table.specs()[spec_id]
        output = self._table.io.new_output(f"{self._folder}/{uuid.uuid4()}-m0.avro")
        with kind(spec, self._schema, output, self._id, _CODEC) as writer:
            for status, entry in entries:
                if status == ManifestEntryStatus.ADDED:
                    writer.add(entry)
                elif status == ManifestEntryStatus.EXISTING:
                    writer.existing(entry)
                else:
                    writer.delete(entry)
        return writer.to_manifest_file()

    def _summary(self, own: Mapping[str, str]) -> Summary:
        collector = SnapshotSummaryCollector()
        specs = self._table.specs()
        for file in self._change.added:
            collector.add_file(file, self._schema, specs[file.spec_id])
        for file in self._removed:
            collector.remove_file(file, self._schema, specs[file.spec_id])
        is_append = not self._removed and not any(map(_deletes, self._change.added))
        counted = update_snapshot_summaries(
            Summary(
                operation=Operation.APPEND if is_append else Operation.OVERWRITE,
                **collector.build(),
                **own,
            ),
            None if self._parent is None else self._parent.summary,
        )
        if self._change.replaces:
            return Summary(operation=Operation.REPLACE, **counted.additional_properties)
        return counted


def _deletes(file: DataFile) -> bool:
    return file.content != DataFileContent.DATA


def _kind(file: DataFile) -> tuple[bool, int]:
    return _deletes(file), file.spec_id or 0


def expire(table: Table, snapshots: Sequence[int]) -> None:
    """Forget snapshots. Raises as ``commit``."""
    send(table, [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(snapshots)})])


def send(table: Table, updates: Sequence[TableUpdate]) -> None:
    """Tell the catalogue, unless the table is another than was seen; then remove old metadata that
    nothing names any more. Raises CommitFailedException.
    """
    current = table.current_snapshot()
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId.model_validate(
            {"current-schema-id": table.metadata.current_schema_id}
        ),
        AssertRefSnapshotId.model_validate(
            {"ref": MAIN_BRANCH, "snapshot-id": None if current is None else current.snapshot_id}
        ),
    )
    before = {entry.metadata_file for entry in table.metadata.metadata_log}
    found = table.catalog.commit_table(table, requirements, tuple(updates))
    for path in before - {entry.metadata_file for entry in found.metadata.metadata_log}:
        remove_file(table, path)


def remove_file(table: Table, path: str) -> None:
    try:
        table.io.delete(path)
    except OSError:
        return  # somebody else did, or it stays: nothing names it
