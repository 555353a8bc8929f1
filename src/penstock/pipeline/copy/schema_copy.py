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
from penstock.model.error_policy import Action, decide
from penstock.model.errors import ConfigError, PenstockError
from penstock.model.table_definition import TableDefinition
from penstock.source.contract import CopySource

_SEQUENCES_SECONDS = paced(60.0)

_TABLES_ALONE = (
    "set destination.schema to tables: Penstock then makes the tables itself, without what shows"
    " such values. Bring views and functions over by a script of your own that you have read"
)

_log = logging.getLogger(__name__)


def awaits_schema(destination: Destination) -> bool:
    """Whether tables are not to be made yet: they come with the source's whole schema."""
    return (
        isinstance(destination, HoldsSchema)
        and destination.schema_options is not None
        and not destination.has_schema()
    )


def check_schema(config: PipelineConfig, destination: Destination) -> None:
    """Raises ConfigError where a whole schema is asked for together with what it cannot be made
    with: pg_dump writes it as the source has it, and knows neither filter nor rules.
    """
    if not isinstance(destination, HoldsSchema) or destination.schema_options is None:
        return
    if config.source.copy_rows is None:
        raise ConfigError(
            "destination.schema: full is made around the copy of the tables, and source.copy is "
            "false",
            remedy="set source.copy to true, or destination.schema to tables",
        )
    if config.transform is not None:
        raise ConfigError(
            "destination.schema: full and transform do not go together: defaults, checks, indexes,"
            " views, functions and comments come as pg_dump writes them, with the values in them"
            " that rules would hide, and checks would refuse rows that rules have changed",
            remedy=_TABLES_ALONE,
        )
    if config.filter.columns or config.filter.rows:
        left_out = "columns" if config.filter.columns else "rows"
        raise ConfigError(
            f"destination.schema: full and filter.{left_out} do not go together: pg_dump writes"
            " tables, views and constraints for all columns and rows, and those that are left out"
            " would be missing in them",
            remedy=_TABLES_ALONE,
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
        self._is_compared = self._has_made = False
        options = destination.schema_options
        self._pause = 0.0 if options is None else options.compare
        self._next_sequences = 0.0
        self._next_compare = time.monotonic() + self._pause

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to make. For any thread."""
        return self._is_whole

    def before(self, snapshot: Any, tables: Sequence[TableDefinition]) -> None:
        """Make what comes before the rows that are read under the snapshot. Where that was done for
        others, follow what has changed since: a new partition, say, is needed by the rows.
        """
        options = self._destination.schema_options
        if options is None:
            return
        _log.info("reading the source's whole schema", extra={"event": "schema_dump"})
        dump = self._source.dump_schema(snapshot, options)
        if self._destination.has_schema():
            self._destination.follow_schema(dump)
        else:
            self._destination.restore_before(dump, tables)
        self._is_compared = True

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
        if not self._is_compared:
            self._compare()
        self._follow_sequences()
        self._is_whole = True

    @property
    def is_due(self) -> bool:
        """Whether ``keep`` has something to do."""
        now = time.monotonic()
        return self._is_whole and (now >= self._next_sequences or self._compares(now))

    def keep(self) -> None:
        """Follow what has changed at the source. Who does not answer is asked the next time."""
        try:
            if self._compares(time.monotonic()):
                self._compare()
            self._follow_sequences()
        except PenstockError as error:
            if decide(error) is not Action.RETRY:
                raise
            _log.warning(error.message, extra={"event": "schema_compare_failed"})

    def heals(self) -> bool:
        """Compare at once, since a table was refused: it may lack a partition, or what was listed.
        Whether something was made, then or shortly before, so that another try may succeed.
        """
        self._compare()
        made, self._has_made = self._has_made, False
        return made

    def end(self) -> None:
        """Let sequences follow for the last time."""
        if not self._is_whole:
            return
        try:
            self._follow_sequences()
        except PenstockError as error:
            _log.warning("sequences stay where they are: %s", error.message)

    def _follow_sequences(self) -> None:
        self._next_sequences = time.monotonic() + _SEQUENCES_SECONDS
        self._destination.set_sequences(self._source.sequences())

    def _compares(self, now: float) -> bool:
        return bool(self._pause) and now >= self._next_compare

    def _compare(self) -> None:
        options = self._destination.schema_options
        self._next_compare = time.monotonic() + self._pause
        self._is_compared = True
        if options is not None:
            dump = self._source.dump_schema(None, options)
            self._has_made |= self._destination.follow_schema(dump)
