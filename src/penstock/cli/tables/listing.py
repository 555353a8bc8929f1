"""`penstock tables list`: each table with its state, its copy, and what a person wants of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, chosen_deliveries
from penstock.cli.terminal import say
from penstock.model.quantity_text import bytes_text
from penstock.model.shown_text import shown_line
from penstock.model.table_state import Errored, TimedRetry
from penstock.operations.named_tables import phase_text, quoted, shown_name, some

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.store import CopyProgress, Store, Wish

_WISHES: dict[Wish, str] = {
    "paused": "its copy is paused; `penstock tables resume` lets it go on",
    "cancelled": "its copy was cancelled; `penstock tables resync` begins a new one",
    "resync": "it is to be copied anew",
}


def list_tables(
    file: PipelineFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array, for other programs.")
    ] = False,
    only: OneDestination = None,
) -> None:
    """Show each table with its state, since when, how far its copy is, and what is wanted of it.

    For errored tables: why, and what to do. docs/tables.md explains the states.

    \b
    Example:
      penstock tables list shop.yaml
      penstock tables list shop.yaml --json | jq '.[] | select(.state.phase == "errored")'
    """
    from penstock.operations.table_json import table_to_json
    from penstock.store import pipeline_store

    views = chosen_deliveries(file, only)
    listed: list[dict[str, Any]] = []
    for config in views:
        with pipeline_store(config) as store:
            tables: list[tuple[str, int]] = []
            if store.exists():
                store.open()
                known = store.get_table_states()
                tables = sorted((shown_name(store, table), table) for table in known)
            if as_json:
                whose = {"destination": config.destination_name} if config.is_one_of_many else {}
                listed += [{**whose, **table_to_json(store, name, table)} for name, table in tables]
                continue
            _show_all(store, config, tables)
            if config is views[-1]:
                _show_rules(store)
    if as_json:
        say(json.dumps(listed, indent=2))


def _show_all(store: Store, config: PipelineConfig, tables: list[tuple[str, int]]) -> None:
    if config.is_one_of_many:
        say(f"destination {config.destination_name}")
    if not tables:
        say(f"Pipeline {config.delivery} has recorded no tables yet; `penstock run` does.")
        return
    tables = [(shown_line(name), table) for name, table in tables]
    width = max(len("table"), *(len(name) for name, _ in tables))
    say(f"{'table':<{width}}  {'state':<23}  since")
    for name, table in tables:
        _show(store, name, table, width)


def _show(store: Store, name: str, table: int, width: int) -> None:
    state, since = store.get_table_state(table), store.get_state_since(table)
    say(f"{name:<{width}}  {phase_text(state):<23}  {_time(since) if since else ''}".rstrip())
    if copy := store.get_copy(table):
        say(f"{'':<{width}}  copied: {_progress(copy)}")
    if wish := store.get_wish(table):
        say(f"{'':<{width}}  wanted: {_WISHES[wish]}")
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


def _progress(copy: CopyProgress) -> str:
    return (
        f"{len(copy.done)} of {len(copy.plan.chunks)} chunks, {copy.rows_done:,} rows, "
        f"{bytes_text(copy.planned_bytes_done)} of about {bytes_text(copy.plan.bytes)}"
    )


def _show_rules(store: Store) -> None:
    rules = store.get_rules()
    for rule, text in (
        ("add", "Followed because of `penstock tables add`"),
        ("remove", "Left out because of `penstock tables remove`"),
    ):
        names = sorted(quoted(*name) for name, kept in rules.items() if kept == rule)
        if names:
            say(f"{text}: {some(names)}")


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
