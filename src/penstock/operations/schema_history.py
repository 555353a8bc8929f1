"""Every definition that a table had, and what was different from the one before."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.model.lsn import format_lsn
from penstock.operations.named_tables import find_tables, recorded_store

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.store import SchemaVersion


def schema_history(config: PipelineConfig, table: str) -> list[dict[str, Any]]:
    """Oldest first: ``lsn``, ``changes`` in words, and the whole ``definition``.

    Raises StoreError for a table that the pipeline does not have.
    """
    with recorded_store(config) as store:
        (oid,) = find_tables(store, [table])
        versions = store.get_schema_versions(oid)
    return [_first(versions[0]), *(_entry(*pair) for pair in pairwise(versions))]


def _first(version: SchemaVersion) -> dict[str, Any]:
    table = version.definition
    columns = ", ".join(column.name for column in table.columns)
    return _told(version, [f"{table.qualified_name} ({columns})"])


def _entry(before: SchemaVersion, after: SchemaVersion) -> dict[str, Any]:
    from penstock.model.schema_change import TableChange

    change = TableChange(before.definition, after.definition)
    return _told(after, [difference.text for difference in change.differences()])


def _told(version: SchemaVersion, changes: list[str]) -> dict[str, Any]:
    return {
        "lsn": format_lsn(version.lsn),
        "changes": changes,
        "definition": version.definition.to_json(),
    }
