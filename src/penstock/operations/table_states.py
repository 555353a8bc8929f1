"""Tables put back to an earlier state: a retry after an error, or one step back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import ConfigError, StoreError
from penstock.model.table_state import Errored
from penstock.operations.named_tables import find_tables, phase_text, recorded_store, shown_name
from penstock.operations.outcome import Outcome, TableOutcome

if TYPE_CHECKING:
    from penstock.config import PipelineConfig


def retry_tables(config: PipelineConfig, file: Path, tables: Sequence[str]) -> Outcome:
    """Put errored tables back into the state before their error.

    Raises StoreError where one is not errored; then nothing is changed.
    """
    outcomes = []
    with recorded_store(config) as store:
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
            outcomes.append(
                TableOutcome(shown_name(store, table), f"errored -> {phase_text(state)}")
            )
    return Outcome(
        tuple(outcomes),
        "A running pipeline takes this up by itself; otherwise the next `penstock run` does. It "
        "delivers what the change log has kept since the error; if that fails again, the table is "
        "errored again, and nothing is lost.",
    )


def rollback_tables(config: PipelineConfig, _file: Path, tables: Sequence[str]) -> Outcome:
    """Put one table one step back in the history of its states, whatever its state is."""
    with recorded_store(config) as store:
        found = find_tables(store, tables)
        if len(found) != 1:
            raise ConfigError(
                f"A rollback takes one table, not {len(found)}; nothing was changed.",
                remedy="Roll them back one after the other.",
            )
        old = store.get_table_state(found[0])
        new = store.rollback_table_state(found[0])
        step = f"{phase_text(old)} -> {phase_text(new)}"
        return Outcome(
            (TableOutcome(shown_name(store, found[0]), step),),
            "A running pipeline takes this up by itself; otherwise the next `penstock run` does.",
        )
