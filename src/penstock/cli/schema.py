"""`penstock schema`: what a table looked like, and when."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.cli.tables.named_tables import NAME_HELP, find_tables, recorded_store
from penstock.cli.terminal import say
from penstock.model.lsn import format_lsn

if TYPE_CHECKING:
    from penstock.store import SchemaVersion

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
    with recorded_store(load_pipeline(file, only)) as store:
        (oid,) = find_tables(store, [table])
        versions = store.get_schema_versions(oid)
    entries = [_first(versions[0]), *(_entry(*pair) for pair in pairwise(versions))]
    if as_json:
        say(json.dumps(entries, indent=1))
        return
    for number, entry in enumerate(entries, start=1):
        say(f"version {number}, from {entry['lsn']} on")
        for line in entry["changes"]:
            say(f"  {line}")


def _first(version: SchemaVersion) -> dict[str, Any]:
    table = version.definition
    columns = ", ".join(column.name for column in table.columns)
    return _told(version, [f"{table.qualified_name} ({columns})"])


def _entry(before: SchemaVersion, after: SchemaVersion) -> dict[str, Any]:
    from penstock.model.schema_change import TableChange

    change = TableChange(before.definition, after.definition)
    return _told(after, [difference.text for difference in change.differences()])


def _told(version: SchemaVersion, changes: list[str]) -> dict[str, Any]:
    return {
        "lsn": format_lsn(version.lsn),
        "changes": changes,
        "definition": version.definition.to_json(),
    }
