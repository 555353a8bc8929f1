"""What can be done to tables, by name. The command line, the API and the page all use this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.config import PipelineConfig
from penstock.operations.outcome import Outcome
from penstock.operations.table_copies import (
    cancel_tables,
    pause_tables,
    resume_tables,
    resync_tables,
)
from penstock.operations.table_membership import add_tables, remove_tables
from penstock.operations.table_states import retry_tables, rollback_tables

TableAction = Callable[[PipelineConfig, Path, Sequence[str]], Outcome]

TABLE_ACTIONS: Mapping[str, TableAction] = {
    "add": add_tables,
    "remove": remove_tables,
    "resync": resync_tables,
    "pause": pause_tables,
    "resume": resume_tables,
    "cancel": cancel_tables,
    "retry": retry_tables,
    "rollback": rollback_tables,
}

OF_ALL_DESTINATIONS = frozenset({"add", "remove"})
"""Which tables are published is the pipeline's affair, whatever the number of its destinations."""
