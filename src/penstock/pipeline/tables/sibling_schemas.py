"""What tables were like before a destination came: others that read the same log have kept it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.changelog.schema_points import SchemaPoints
from penstock.config import load_deliveries
from penstock.config.filter_config import FilterConfig
from penstock.model.errors import LogError
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.run.context import RunContext
from penstock.store import SchemaVersion, pipeline_store
from penstock.transform.step import marked_by


class SiblingSchemas:
    """For destinations that are not copied to: what they get of a table begins in the past, so its
    definition does, too. Where tables are copied they begin as they are now.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._is_needed = context.config.is_one_of_many and context.config.source.copy_rows is None
        self._versions: dict[int, list[SchemaVersion]] = {}

    def as_of(
        self, tables: Sequence[TableDefinition], begin: Frontier
    ) -> Sequence[TableDefinition]:
        """The tables as they were where the stream begins, as far as somebody knows; one that came
        later, as it came.

        Raises LogError where nobody knows what a table was like at the log's own beginning, and the
        log tells of changes since.
        """
        if not self._is_needed or not tables:
            return tables
        listing = self._context.log.list()
        if SchemaPoints(self._context.log).next_after(listing, begin.commit_lsn) is None:
            return tables
        self._read([table.oid for table in tables])
        unknown = [table for table in tables if table.oid not in self._versions]
        if unknown and self._context.config.replays_log and not begin.commit_lsn:
            raise LogError(
                f"the change log tells of schema changes, and nobody has kept what table "
                f"{unknown[0].qualified_name} was like before them: no other destination follows "
                "it without a filter",
                remedy="begin with a copy: leave `from: log` of this destination out",
            )
        found: list[TableDefinition] = []
        for table in tables:
            if table.oid in self._versions:
                found += self._told(self._version(table.oid, begin.end_lsn))
            else:
                found.append(table)
        return found

    def _told(self, table: TableDefinition) -> list[TableDefinition]:
        """A table as this destination is told of it, as the source's own are (``seen_by``)."""
        context, found = self._context, [table]
        if context.filter is not None and context.destination.capabilities.merges:
            found = context.filter.definitions(found)
        return found if context.transform is None else context.transform.definitions(found)

    def _version(self, oid: int, lsn: int) -> TableDefinition:
        versions = self._versions[oid]
        held = [version for version in versions if version.lsn <= lsn]
        # What its steps do to the table is the other's affair.
        return marked_by((held or versions)[-1 if held else 0].definition, ())

    def _read(self, tables: Sequence[int]) -> None:
        """The longest history of each, of those that see the whole of it."""
        for config in load_deliveries(self._context.file):
            is_other = config.delivery != self._context.config.delivery
            if not is_other or config.filter != FilterConfig():
                continue
            with pipeline_store(config) as store:
                if not store.exists():
                    continue
                store.load_table_schemas()
                for oid in tables:
                    versions = store.get_schema_versions(oid)
                    known = self._versions.get(oid)
                    if versions and (not known or versions[0].lsn < known[0].lsn):
                        self._versions[oid] = list(versions)
