"""What all commands that steer tables share: their argument, and how what they did is shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.pipeline_argument import load_deliveries, load_pipeline
from penstock.cli.terminal import say

NAME_HELP = "As in the pipeline file: schema.table, or table for one of public."

TableNames = Annotated[list[str], typer.Argument(metavar="TABLE...", help=NAME_HELP)]


def steer(action: str, file: Path, tables: Sequence[str], only: str | None = None) -> None:
    """Do what the operation of that name does, and say what became of each table. ``only`` is the
    destination that is meant; which tables are followed is the affair of all.
    """
    from penstock.operations.table_actions import OF_ALL_DESTINATIONS, TABLE_ACTIONS

    of_all = action in OF_ALL_DESTINATIONS
    config = load_deliveries(file)[0] if of_all else load_pipeline(file, only)
    outcome = TABLE_ACTIONS[action](config, file, tables)
    for table in outcome.tables:
        say(f"{table.table}: {table.text}")
    if outcome.note:
        say(outcome.note)
