"""What a person wants of the copies of tables: anew, paused, resumed, cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import ConfigError, StoreError
from penstock.model.table_state import Errored, Ready
from penstock.operations.named_tables import (
    TAKEN_UP,
    find_tables,
    phase_text,
    recorded_store,
    shown_name,
)
from penstock.operations.outcome import Outcome, TableOutcome

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.store import Store, Wish

Judge = Callable[["Store", int], StoreError | None]
"""Why a table's copy cannot be what is asked for, if it cannot."""


def resync_tables(config: PipelineConfig, file: Path, tables: Sequence[str]) -> Outcome:
    """Copy tables anew, whatever their state is. Their rows at the destination are replaced."""
    if config.source.copy_rows is None:
        raise ConfigError(
            "source.copy is false, so tables are not copied; nothing was changed.",
            remedy=f"Set source.copy to true in {file} and start `penstock run` again.",
        )
    return _wish(config, tables, "resync", lambda _store, _table: None, "is to be copied anew")


def pause_tables(config: PipelineConfig, _file: Path, tables: Sequence[str]) -> Outcome:
    """Let copies rest. What is copied stays."""
    return _wish(config, tables, "paused", _is_under_way, "is paused")


def resume_tables(config: PipelineConfig, _file: Path, tables: Sequence[str]) -> Outcome:
    """Let paused copies go on where they stopped."""
    return _wish(config, tables, None, _is_paused, "goes on")


def cancel_tables(config: PipelineConfig, _file: Path, tables: Sequence[str]) -> Outcome:
    """Give copies up. Nothing of such a table is delivered until it is copied anew."""
    return _wish(config, tables, "cancelled", _is_under_way, "is cancelled")


def _wish(
    config: PipelineConfig, texts: Sequence[str], wish: Wish | None, judge: Judge, becomes: str
) -> Outcome:
    """Write the wish for all the tables, or, where one cannot have it, for none."""
    with recorded_store(config) as store:
        found = find_tables(store, texts)
        for table in found:
            has_it = wish is not None and store.get_wish(table) == wish
            if not has_it and (error := judge(store, table)):
                raise error
        store.set_wishes(dict.fromkeys(found, wish))
        return Outcome(
            tuple(TableOutcome(shown_name(store, table), becomes) for table in found), TAKEN_UP
        )


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
