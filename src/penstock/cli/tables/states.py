"""`penstock tables retry` and `rollback`: back to an earlier state."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.cli.tables.named_tables import (
    NAME_HELP,
    TableNames,
    find_tables,
    phase_text,
    recorded_store,
    shown_name,
)
from penstock.cli.terminal import say
from penstock.model.errors import StoreError
from penstock.model.table_state import Errored


def retry(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Let errored tables be tried again. Mend the cause first: `tables list` names it.

    Each table goes back to the state before its error, and its changes since then are delivered
    from the change log, which has kept them. If one of the tables is unknown or not errored,
    nothing is changed.

    \b
    Example:
      penstock tables retry shop.yaml public.orders
      penstock tables retry shop.yaml orders items
    """
    with recorded_store(load_pipeline(file, only)) as store:
        # All are looked at before the first is changed.
        found = find_tables(store, tables)
        for table in found:
            state = store.get_table_state(table)
            if not isinstance(state, Errored):
                raise StoreError(
                    f"Table {shown_name(store, table)} is {phase_text(state)}, not errored; "
                    "nothing was changed.",
                    remedy=f"`penstock tables list {file}` shows which tables are errored.",
                )
        for table in found:
            state = store.retry_table(table)
            say(f"{shown_name(store, table)}: errored -> {phase_text(state)}")
    say(
        "A running pipeline takes this up by itself; otherwise the next `penstock run` does. It "
        "delivers what the change log has kept since the error; if that fails again, the table is "
        "errored again, and nothing is lost."
    )


def rollback(
    file: PipelineFile,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=NAME_HELP)],
    only: OneDestination = None,
) -> None:
    """Put one table one step back in the history of its states, whatever its state is.

    For an errored table this is what `retry` does. In other states the step that led there is
    taken again: a table that was ready after init is looked at anew.

    \b
    Example:
      penstock tables rollback shop.yaml public.orders
    """
    with recorded_store(load_pipeline(file, only)) as store:
        (found,) = find_tables(store, [table])
        old = store.get_table_state(found)
        new = store.rollback_table_state(found)
        say(f"{shown_name(store, found)}: {phase_text(old)} -> {phase_text(new)}")
    say("A running pipeline takes this up by itself; otherwise the next `penstock run` does.")
