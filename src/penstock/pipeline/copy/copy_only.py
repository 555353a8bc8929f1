"""`penstock snapshot`: every table as it is at one point, and nothing after that."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.protocols import Unrestored
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.errors import CheckFailed
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Errored, Init, Ready
from penstock.model.watermarks import Watermarks
from penstock.pipeline.copy.copies import make_copies_only
from penstock.pipeline.copy.copy_progress import CopyView
from penstock.pipeline.copy.schema_copy import awaits_schema, unrestored
from penstock.pipeline.run.engine import MakeEngine
from penstock.pipeline.run.opened import name_source, opened_context
from penstock.pipeline.tables.registry import TableRegistry
from penstock.store import Store, pipeline_store
from penstock.transform.transform_check import require_rules

_TURN_SECONDS = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CopyReport:
    """What was copied: rows by table, as of the point ``lsn``; why others were not.

    ``unrestored`` is what of a whole schema could not be made.
    """

    lsn: int
    rows: Mapping[str, int]
    refused: Mapping[str, str]
    unrestored: Sequence[Unrestored] = ()


class NoStream:
    """Stands where the stream's position would be: copied tables wait for nobody."""

    standing = Watermarks()

    def place(self, tables: Mapping[int, Frontier]) -> None: ...

    def free(self, tables: Collection[int]) -> None: ...


def copy_only(
    config: PipelineConfig,
    file: Path,
    make_engine: MakeEngine,
    stopping: Callable[[], bool],
    *,
    observe_copies: Callable[[list[CopyView]], None] = lambda _views: None,
) -> CopyReport | None:
    """Copy every table that source.tables names, all at one point; None where it was stopped.

    After a crash, a run that finds its snapshot alive goes on under it; else it begins anew.
    """
    with opened_context(
        config,
        file,
        make_engine,
        purpose="snapshot",
        open_store=lambda _destination: _store(config),
        metrics=Metrics(config.name, config.destination_name),
    ) as context:
        store = context.store
        name_source(context)
        definitions = context.session.matching()
        if not definitions:
            raise CheckFailed(
                "No table of the source matches source.tables; there is nothing to copy.",
                remedy="Correct include and exclude; `penstock check` lists what matches.",
            )
        if (transform := context.transform) is not None:
            merges = context.destination.capabilities.merges
            require_rules(transform, transform.seen(definitions), merges=merges)
        tables = TableRegistry(store, merges=True, copies=True)
        # Since an earlier run was stopped, some may have been dropped or excluded.
        store.forget_tables(store.get_table_states().keys() - {table.oid for table in definitions})
        _begin_anew_if_changed(store, tables, definitions)
        if awaits_schema(context.destination):
            tables.to_prepare([table.oid for table in definitions])
        else:
            context.destination.prepare(definitions)
        tables.enrol(definitions, 0)
        tables.take_part()
        with context.engine:
            copies = make_copies_only(context, tables, NoStream())
            copies.start()
            try:
                while not stopping() and not (tables.are_settled and copies.is_settled):
                    copies.check()
                    context.session.keep()
                    copies.show(observe_copies)
                    time.sleep(_TURN_SECONDS)
            finally:
                copies.stop()
            copies.check()
            observe_copies(copies.views())
        if not (tables.are_settled and copies.is_settled):
            return None
        report = _report(store, tables, context.destination)
        store.forget_pipeline()
        return report


def _begin_anew_if_changed(
    store: Store, tables: TableRegistry, definitions: Sequence[TableDefinition]
) -> None:
    """Where an earlier run was stopped, and copied rows under other rules, another key, condition
    or list of columns: rows of all tables come again, since all share one snapshot.
    """
    states, known = store.get_table_states(), store.get_table_schemas()
    begun = [oid for oid, state in states.items() if not isinstance(state, Init)]
    others = [
        table
        for table in definitions
        if table.oid in begun and _passing(known[table.oid]) != _passing(table)
    ]
    if not others:
        return
    _log.warning(
        "rules, key, condition or columns of %s are others than when the copy began; all tables "
        "are copied anew",
        ", ".join(sorted(table.qualified_name for table in others)),
        extra={"event": "rules_changed"},
    )
    for oid in begun:
        tables.copy_anew(oid)


def _passing(table: TableDefinition) -> tuple[str, str, set[str]]:
    """What tells which values of a table come, and as what."""
    return table.transform, table.rows, {c.name for c in table.columns if c.is_delivered}


def _report(store: Store, tables: TableRegistry, destination: Destination) -> CopyReport:
    copies, states = store.get_copies(), store.get_table_states()
    names = {oid: tables.qualified_name(oid) for oid in states}
    return CopyReport(
        max((copy.last_lsn for copy in copies.values()), default=0),
        {names[oid]: copies[oid].rows_done for oid, s in states.items() if isinstance(s, Ready)},
        {names[oid]: s.reason for oid, s in states.items() if isinstance(s, Errored)},
        unrestored(destination),
    )


@contextmanager
def _store(config: PipelineConfig) -> Iterator[Store]:
    # Not the states of the pipeline itself, which may have a stream.
    with pipeline_store(config.model_copy(update={"name": f"{config.name}/snapshot"})) as store:
        store.open()
        yield store
