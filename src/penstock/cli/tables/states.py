"""`penstock tables retry` and `rollback`: back to an earlier state."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile
from penstock.cli.tables.steering import NAME_HELP, TableNames, steer


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
    steer("retry", file, tables, only)


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
    steer("rollback", file, [table], only)
