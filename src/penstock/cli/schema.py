"""`penstock schema`: what a table looked like, and when."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.cli.tables.steering import NAME_HELP
from penstock.cli.terminal import say

schema_app = typer.Typer(no_args_is_help=True, help="Show how tables changed.")


@schema_app.command("history")
def history(
    file: PipelineFile,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=NAME_HELP)],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    only: OneDestination = None,
) -> None:
    """Show every definition that a table had since the pipeline follows it, oldest first.

    Each is shown with the LSN of the commit from which on it held, and with what was different from
    the one before.

    \b
    Example:
      penstock schema history shop.yaml public.orders
    """
    from penstock.operations.schema_history import schema_history

    entries = schema_history(load_pipeline(file, only), table)
    if as_json:
        say(json.dumps(entries, indent=1))
        return
    for number, entry in enumerate(entries, start=1):
        say(f"version {number}, from {entry['lsn']} on")
        for line in entry["changes"]:
            say(f"  {line}")
