"""The source's whole schema, taken around the copies of its tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from penstock.cadence import paced
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.protocols import HoldsSchema, Unrestored
from penstock.model.errors import ConfigError, PenstockError
from penstock.model.table_definition import TableDefinition
from penstock.source.contract import CopySource

_SEQUENCES_SECONDS = paced(60.0)

_log = logging.getLogger(__name__)


def awaits_schema(destination: Destination) -> bool:
    """Whether tables are not to be made yet: they come with the source's whole schema."""
    return (
        isinstance(destination, HoldsSchema)
        and destination.schema_options is not None
        and not destination.has_schema()
    )


def check_schema(config: PipelineConfig, destination: Destination) -> None:
    """Raises ConfigError where a whole schema is asked for, and no rows."""
    wants = isinstance(destination, HoldsSchema) and destination.schema_options is not None
    if wants and config.source.copy_rows is None:
        raise ConfigError(
            "destination.schema: full is made around the copy of the tables, and source.copy is "
            "false",
            remedy="set source.copy to true, or destination.schema to tables",
        )


def unrestored(destination: Destination) -> Sequence[Unrestored]:
    """What of a whole schema could not be made."""
    if isinstance(destination, HoldsSchema) and destination.schema_options is not None:
        return destination.unrestored()
    return ()


def schema_copy(
    source: CopySource, destination: Destination, *, followed: bool
) -> SchemaCopy | None:
    """None where the destination makes tables alone. ``followed``: a stream comes after."""
    if not isinstance(destination, HoldsSchema) or destination.schema_options is None:
        return None
    return SchemaCopy(source, destination, followed=followed)


class SchemaCopy:
    """Used by the thread of the copy manager, and by one of its pool at a time."""

    def __init__(self, source: CopySource, destination: HoldsSchema, *, followed: bool) -> None:
        self._source = source
        self._destination = destination
        self._followed = followed
        self._is_whole = False
        self._next_sequences = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to make. For any thread."""
        return self._is_whole

    def before(self, snapshot: Any, tables: Sequence[TableDefinition]) -> None:
        """Make what comes before the rows that are read under the snapshot, the first time."""
        options = self._destination.schema_options
        if options is None or self._destination.has_schema():
            return
        _log.info("taking the source's whole schema", extra={"event": "schema_dump"})
        dump = self._source.dump_schema(snapshot, options)
        self._destination.restore_before(dump, tables)

    def after(self) -> None:
        """Make the rest. Called when all tables hold their rows, and again after a crash."""
        if not self._destination.has_schema():
            # There was no table to copy, or all were copied before a whole schema was asked for.
            number, snapshot = self._source.snapshots.take()
            try:
                self.before(snapshot, ())
            finally:
                self._source.snapshots.release(number)
        if not self._destination.is_whole():
            self._destination.restore_after(followed=self._followed)
        self.follow_sequences()
        self._is_whole = True

    def follow_sequences(self) -> None:
        self._next_sequences = time.monotonic() + _SEQUENCES_SECONDS
        self._destination.set_sequences(self._source.sequences())

    def keep(self) -> None:
        """Called often once all is made: sequences follow now and then. Whoever does not answer is
        asked the next time.
        """
        if self._is_whole and time.monotonic() >= self._next_sequences:
            self.end()

    def end(self) -> None:
        """For the last time."""
        if not self._is_whole:
            return
        try:
            self.follow_sequences()
        except PenstockError as error:
            _log.warning("sequences stay where they are: %s", error.message)
