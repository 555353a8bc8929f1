"""`penstock tables resync`, `pause`, `resume` and `cancel`: what a person wants of copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.cli.tables.named_tables import (
    TAKEN_UP,
    TableNames,
    find_tables,
    phase_text,
    recorded_store,
    shown_name,
)
from penstock.cli.terminal import say
from penstock.model.errors import ConfigError, StoreError
from penstock.model.table_state import Errored, Ready

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.store import Store, Wish

Judge = Callable[["Store", int], StoreError | None]
"""Why a table's copy cannot be what is asked for, if it cannot."""


def resync(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Copy tables anew, whatever their state is: also errored ones, and those that were cancelled.

    The table's rows at the destination are replaced. Its changes wait in the change log meanwhile;
    the other tables go on.

    \b
    Example:
      penstock tables resync shop.yaml public.orders
      penstock tables resync shop.yaml orders items
    """
    config = load_pipeline(file, only)
    if config.source.copy_rows is None:
        raise ConfigError(
            "source.copy is false, so tables are not copied; nothing was changed.",
            remedy=f"Set source.copy to true in {file} and start `penstock run` again.",
        )
    _wish(config, tables, "resync", lambda _store, _table: None, "is to be copied anew")


def pause(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Let the copies of tables rest. What is copied stays; `tables resume` goes on from there.

    The changes since the copy began are still kept for it, in the change log or in the source's
    WAL: `penstock status` shows how much that is.

    \b
    Example:
      penstock tables pause shop.yaml public.orders
    """
    _wish(load_pipeline(file, only), tables, "paused", _is_under_way, "is paused")


def resume(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Let paused copies go on where they stopped.

    \b
    Example:
      penstock tables resume shop.yaml public.orders
    """
    _wish(load_pipeline(file, only), tables, None, _is_paused, "goes on")


def cancel(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Give the copies of tables up. Nothing of such a table is delivered until `tables resync`.

    Unlike a paused copy, it holds nothing back: a later copy begins from the start.

    \b
    Example:
      penstock tables cancel shop.yaml public.orders
      penstock tables resync shop.yaml public.orders    begins a new copy
    """
    _wish(load_pipeline(file, only), tables, "cancelled", _is_under_way, "is cancelled")


def _wish(
    config: PipelineConfig, texts: list[str], wish: Wish | None, judge: Judge, becomes: str
) -> None:
    """Write the wish for all the tables, or, where one cannot have it, for none."""
    with recorded_store(config) as store:
        found = find_tables(store, texts)
        for table in found:
            has_it = wish is not None and store.get_wish(table) == wish
            if not has_it and (error := judge(store, table)):
                raise error
        store.set_wishes(dict.fromkeys(found, wish))
        for table in found:
            say(f"{shown_name(store, table)}: {becomes}")
    say(TAKEN_UP)


def _is_under_way(store: Store, table: int) -> StoreError | None:
    name, state = shown_name(store, table), store.get_table_state(table)
    if store.get_wish(table) == "cancelled":
        return StoreError(
            f"The copy of {name} was cancelled before; nothing was changed.",
            remedy="`penstock tables resync` begins a new one.",
        )
    if isinstance(state, Errored):
        return StoreError(
            f"Table {name} is errored, so no copy of it is under way; nothing was changed.",
            remedy="`penstock tables retry` lets it go on, `penstock tables resync` begins anew.",
        )
    if state is None or isinstance(state, Ready):
        return StoreError(
            f"No copy of {name} is under way: the table is {phase_text(state)}; nothing was "
            "changed.",
            remedy="`penstock tables list` shows which tables are being copied.",
        )
    return None


def _is_paused(store: Store, table: int) -> StoreError | None:
    name, wish = shown_name(store, table), store.get_wish(table)
    if wish == "paused":
        return None
    if wish == "cancelled":
        return StoreError(
            f"The copy of {name} was cancelled, not paused; nothing was changed.",
            remedy="`penstock tables resync` begins a new one.",
        )
    return StoreError(
        f"There is nothing to resume: {name} is {phase_text(store.get_table_state(table))} and "
        "not paused; nothing was changed.",
        remedy="`penstock tables list` shows which copies are paused.",
    )
