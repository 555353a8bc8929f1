"""`penstock tables`: the states of a pipeline's tables, and what a person may change of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.cli.pipeline_argument import PipelineFile
from penstock.cli.terminal import say
from penstock.config import PipelineConfig, load_pipeline
from penstock.config.table_patterns import split_name
from penstock.errors import ConfigError, StoreError
from penstock.lsn import format_lsn
from penstock.pipeline.table_state import (
    Catchup,
    Errored,
    SyncDone,
    TableState,
    TimedRetry,
    state_to_json,
)
from penstock.store import Store, pipeline_store

tables_app = typer.Typer(no_args_is_help=True, help="Show table states, and change them.")

_NAME_HELP = "As in the pipeline file: schema.table, or table for one of public."


@tables_app.command("list")
def list_tables(
    file: PipelineFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array, for other programs.")
    ] = False,
) -> None:
    """Show each table with its state, since when, and for errored ones why and what to do.

    docs/table_states.md explains the states.

    \b
    Example:
      penstock tables list shop.yaml
      penstock tables list shop.yaml --json | jq '.[] | select(.state.phase == "errored")'
    """
    config = load_pipeline(file)
    with pipeline_store(config) as store:
        tables: list[tuple[str, int]] = []
        if store.exists():
            store.open()
            tables = sorted(
                (_shown_name(store, table), table) for table in store.get_table_states()
            )
        if as_json:
            say(json.dumps([_to_json(store, name, table) for name, table in tables], indent=2))
            return
        if not tables:
            say(f"Pipeline {config.name} has recorded no tables yet; `penstock run` does.")
            return
        width = max(len("table"), *(len(name) for name, _ in tables))
        say(f"{'table':<{width}}  {'state':<23}  since")
        for name, table in tables:
            _show(store, name, table, width)


@tables_app.command("retry")
def retry(
    file: PipelineFile,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help=_NAME_HELP)],
) -> None:
    """Let errored tables be tried again. Mend the cause first: `tables list` names it.

    Each table goes back to the state before its error, and its changes since then are delivered
    from the change log, which has kept them. If one of the tables is unknown or not errored,
    nothing is changed.

    \b
    Example:
      penstock tables retry shop.yaml public.orders
      penstock tables retry shop.yaml orders items
    """
    with _recorded(load_pipeline(file)) as store:
        # Each once, in the order given; and all are looked at before the first is changed.
        found = list(dict.fromkeys(_find(store, text) for text in tables))
        for table in found:
            state = store.get_table_state(table)
            if not isinstance(state, Errored):
                raise StoreError(
                    f"Table {_shown_name(store, table)} is {_phase(state)}, not errored; nothing "
                    "was changed.",
                    remedy=f"`penstock tables list {file}` shows which tables are errored.",
                )
        for table in found:
            state = store.retry_table(table)
            say(f"{_shown_name(store, table)}: errored -> {_phase(state)}")
    say(
        "A running pipeline takes this up by itself; otherwise the next `penstock run` does. It "
        "delivers what the change log has kept since the error; if that fails again, the table is "
        "errored again, and nothing is lost."
    )


@tables_app.command("rollback")
def rollback(
    file: PipelineFile,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=_NAME_HELP)],
) -> None:
    """Put one table one step back in the history of its states, whatever its state is.

    For an errored table this is what `retry` does. In other states the step that led there is
    taken again: a table that was ready after init is looked at anew.

    \b
    Example:
      penstock tables rollback shop.yaml public.orders
    """
    with _recorded(load_pipeline(file)) as store:
        found = _find(store, table)
        old = store.get_table_state(found)
        new = store.rollback_table_state(found)
        say(f"{_shown_name(store, found)}: {_phase(old)} -> {_phase(new)}")
    say("A running pipeline takes this up by itself; otherwise the next `penstock run` does.")


@contextmanager
def _recorded(config: PipelineConfig) -> Iterator[Store]:
    """The pipeline's store, loaded; nothing is created for a pipeline that never ran."""
    with pipeline_store(config) as store:
        if not store.exists():
            raise StoreError(
                f"Pipeline {config.name} has recorded no tables yet.",
                remedy="`penstock run` records them when it starts.",
            )
        store.open()
        yield store


def _find(store: Store, text: str) -> int:
    try:
        schema, name = split_name(text)
    except ValueError as error:
        raise ConfigError(
            f"{error}.", remedy="Write schema.table, such as public.orders."
        ) from None
    table = store.find_table(schema, name)
    if table is None or store.get_table_state(table) is None:
        known = sorted(_shown_name(store, table) for table in store.get_table_states())
        raise StoreError(
            f"Pipeline {store.pipeline} has no table {schema}.{name}; nothing was changed.",
            remedy=f"It has {_some(known)}." if known else "It has recorded no tables yet.",
        )
    return table


def _some(names: list[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _shown_name(store: Store, table: int) -> str:
    """A name that can be given back to a command: odd ones in quotes."""
    definition = store.get_table_schema(table)
    if definition is None:
        return f"oid {table}"
    parts = (definition.schema, definition.name)
    return ".".join(
        part if re.fullmatch(r'[^."\s]+', part) else '"' + part.replace('"', '""') + '"'
        for part in parts
    )


def _phase(state: TableState | None) -> str:
    if state is None:
        return "without a state"
    return (
        f"{state.phase} {format_lsn(state.lsn)}"
        if isinstance(state, Catchup | SyncDone)
        else state.phase
    )


def _show(store: Store, name: str, table: int, width: int) -> None:
    state, since = store.get_table_state(table), store.get_state_since(table)
    say(f"{name:<{width}}  {_phase(state):<23}  {_time(since) if since else ''}".rstrip())
    if not isinstance(state, Errored):
        return
    say(f"{'':<{width}}  why: {state.reason}")
    if state.solution:
        say(f"{'':<{width}}  what to do: {state.solution}")
    if isinstance(state.retry, TimedRetry):
        when = f"by itself at {_time(state.retry.next_at)}, attempt {state.retry.attempt}"
    else:
        when = "when `penstock tables retry` asks for it"
    say(f"{'':<{width}}  next try: {when}")


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _to_json(store: Store, name: str, table: int) -> dict[str, Any]:
    state, since = store.get_table_state(table), store.get_state_since(table)
    return {
        "table": name,
        "oid": table,
        "state": None if state is None else state_to_json(state),
        "since": None if since is None else since.astimezone(UTC).isoformat(),
        "destination": store.get_table_mapping(table),
    }
