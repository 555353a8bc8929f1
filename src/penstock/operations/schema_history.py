"""Every definition that a table had, and what was different from the one before."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.model.lsn import format_lsn
from penstock.operations.named_tables import existing_store, parse_names, quoted, unknown_table

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.store import SchemaVersion


def schema_history(config: PipelineConfig, table: str) -> list[dict[str, Any]]:
    """Oldest first: ``lsn``, ``changes`` in words, and the whole ``definition``.

    Raises StoreError for a table that the pipeline does not have.
    """
    (wanted,) = parse_names([table])
    with existing_store(config) as store:
        store.load_table_states()
        names = store.load_table_names()
        known = {names[oid]: oid for oid in store.get_table_states() if oid in names}
        if wanted not in known:
            shown = sorted(quoted(*name) for name in known)
            raise unknown_table(store.pipeline, wanted, shown)
        versions = store.load_schema_versions(known[wanted])
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
