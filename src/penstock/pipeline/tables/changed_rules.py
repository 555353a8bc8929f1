"""Rules or a key that are others than when a table's rows were delivered."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from penstock.model.errors import ConfigError
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Errored, Init
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import Subscription
from penstock.store import Store
from penstock.transform.step import Step, marked_by
from penstock.transform.transform_check import require_rules

_log = logging.getLogger(__name__)


def check_rules_at_start(context: RunContext, subscription: Subscription) -> None:
    """Before anything is made at the destination: rules have to suit the tables that are published,
    and those that were followed before. Raises ConfigError where they do not.
    """
    transform, session = context.transform, context.session
    if transform is None:
        return
    asked = {table.oid: table for table in session.definitions(list(subscription.tables))}
    asked |= session.definitions_of(
        [o for o in context.store.get_table_schemas() if o not in asked]
    )
    seen = transform.seen(asked.values())
    require_rules(transform, seen, merges=context.destination.capabilities.merges)


def heed_rules(context: RunContext, tables: TableRegistry) -> None:
    """At the start, before anything is delivered: a table whose rows came under other rules is
    copied anew. Raises ConfigError where tables are not copied.
    """
    store, steps = context.store, (context.filter, context.transform)
    others = changed_tables(store, steps)
    if not others:
        return
    names = ", ".join(sorted(table.qualified_name for table in others.values()))
    if context.config.source.copy_rows is None:
        raise ConfigError(
            f"transform: rules, key or condition of {names} are others than when their rows were "
            "delivered, and rows are not copied: there would be rows of both kinds",
            remedy="put the old rules, key and condition back; or, if the destination may hold "
            "both, run `penstock transform accept FILE`",
        )
    states = store.get_table_states()
    for oid, table in others.items():
        _log.warning(
            "table %s: its rules or the key are others (or the condition of filter.rows) than when "
            "its rows were delivered; it is copied anew",
            table.qualified_name,
            extra={"event": "rules_changed", "table": table.qualified_name},
        )
        if isinstance(states.get(oid), Errored):
            store.set_wishes({oid: "resync"})
        elif not isinstance(states.get(oid), Init):
            tables.copy_anew(oid)


def changed_tables(store: Store, steps: Sequence[Step | None]) -> Mapping[int, TableDefinition]:
    """The tables whose rows came under other rules, as they are known; those that wait for a copy
    are not among them.
    """
    states = store.get_table_states()
    return {
        oid: table
        for oid, table in store.get_table_schemas().items()
        if oid in states and not isinstance(states[oid], Init) and table != marked_by(table, steps)
    }


def accept_rules(store: Store, steps: Sequence[Step | None]) -> list[str]:
    """Take the rules of now for those that rows came under; the names of the tables that it is
    about.
    """
    found = changed_tables(store, steps)
    for oid, table in found.items():
        newest = store.get_schema_versions(oid)[-1]
        store.store_table_schemas([marked_by(table, steps)], newest.lsn)
    return sorted(table.qualified_name for table in found.values())
