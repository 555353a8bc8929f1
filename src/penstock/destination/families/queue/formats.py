"""Which messages a queue gets: its format, by the options that all queues share."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.destination.encode.bifrost.format import BifrostFormat
from penstock.destination.encode.cloudevents import CloudEventsFormat
from penstock.destination.encode.debezium.format import DebeziumFormat
from penstock.destination.encode.messages import EventFormat
from penstock.destination.encode.penstock_json import PenstockFormat
from penstock.destination.families.queue.finders import identity_by, version_finder
from penstock.destination.families.queue.options import FormatOptions
from penstock.destination.families.queue.versions import VersionedFormat
from penstock.model.table_definition import TableDefinition


class Formats:
    """Makes the format that the options choose, with what is known of tables so far."""

    def __init__(self, options: FormatOptions, pipeline: str) -> None:
        self._options = options
        self._pipeline = pipeline
        self._definitions: dict[int, TableDefinition] = {}
        self._keys: dict[int, tuple[str, ...]] = {}

    def know(self, tables: Iterable[TableDefinition]) -> None:
        """From now on these tables are so. Raises DestinationError where a finder is wrong."""
        for table in tables:
            self._keys[table.oid] = identity_by(self._options.identity, table)
            self._definitions[table.oid] = table

    def format(self) -> EventFormat:
        """For events of tables as they are known now."""
        made = self._plain()
        if self._options.version is None:
            return made
        in_events = self._options.format == "penstock"
        return VersionedFormat(made, version_finder(self._options.version), in_events)

    def _plain(self) -> EventFormat:
        options = self._options
        if options.format == "debezium":
            named = options.debezium.of(self._pipeline)
            return DebeziumFormat(named, self._definitions, self._keys)
        if options.format == "bifrost":
            return BifrostFormat(options.bifrost, self._definitions, self._keys)
        made = self._own()
        if options.format == "cloudevents":
            return CloudEventsFormat(made, f"/penstock/{self._pipeline}")
        return made

    def _own(self) -> PenstockFormat:
        # Copies: another thread may hear of more tables while this one pickles the format.
        keys = dict(self._keys)
        if not self._options.penstock.column_ids:
            return PenstockFormat(keys)
        ids = {
            table.oid: {column.name: column.attnum for column in table.columns}
            for table in tuple(self._definitions.values())
        }
        return PenstockFormat(keys, ids)
