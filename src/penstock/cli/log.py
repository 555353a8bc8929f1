"""`penstock log`: look into a change log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.segment_name import SegmentName
from penstock.cli.pipeline_argument import load_deliveries
from penstock.cli.terminal import say
from penstock.model.errors import ConfigError
from penstock.model.lsn import format_lsn
from penstock.model.quantity_text import bytes_text
from penstock.model.schema_message import SCHEMA_CHANGE
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.messages import (
    UNSET,
    Delete,
    Insert,
    LogicalMessage,
    Truncate,
    Update,
    Value,
    parse_message,
)

if TYPE_CHECKING:
    from penstock.changelog.segment import Segment

log_app = typer.Typer(no_args_is_help=True, help="Look into a change log.")


@log_app.command("inspect")
def inspect(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="The change log's folder or URL, or a pipeline file."),
    ],
    segment: Annotated[
        int | None, typer.Option(help="Show the transactions of this segment only.")
    ] = None,
    rows: Annotated[
        int, typer.Option(min=0, help="Also show the first N decoded rows of each transaction.")
    ] = 0,
    table: Annotated[
        str | None, typer.Option(help="Show only rows of this table (schema.table).")
    ] = None,
) -> None:
    """Print segments, positions, transactions and decoded rows of a change log.

    Reads only, so it can be used beside a running pipeline. Every segment that is shown in detail
    is checked against its checksum.

    \b
    Example:
      penstock log inspect shop.yaml
      penstock log inspect .penstock/shop/log
      penstock log inspect s3://bucket/shop
      penstock log inspect .penstock/shop/log --segment 42 --rows 3
      penstock log inspect .penstock/shop/log --rows 5 --table public.orders
    """
    log = _named(path)
    listing = log.list()
    if not listing.sizes:
        raise ConfigError(
            f"{path} holds no segments",
            remedy="give the folder that change_log.path names, and let capture run first",
        )
    if segment is None and not rows:
        _show_segments(listing)
        return
    chosen = [name for name in listing.segments if segment in (None, name.sequence)]
    if not chosen:
        raise ConfigError(f"{path} has no segment {segment}")
    for name in chosen:
        say(f"segment {name.sequence} (epoch {name.epoch}), {name.rows} changes")
        for line in _describe(log.read(str(name)), name, rows, table):
            say(line)


def _named(path: str) -> ChangeLog:
    if path.endswith((".yaml", ".yml")):
        return ChangeLog.of(load_deliveries(Path(path))[0].change_log)
    return ChangeLog(path)


def _show_segments(listing: Listing) -> None:
    say(
        f"{'segment':>12} {'epoch':>10} {'changes':>9} {'size':>10}  "
        f"{'after':>17} {'last':>17}  note"
    )
    for name in listing.segments:
        notes = []
        if name.is_open:
            notes.append("ends inside a transaction")
        if not name.rows:
            notes.append(f"nothing for us up to {format_lsn(name.end_lsn)}")
        say(
            f"{name.sequence:>12} {name.epoch:>10} {name.rows:>9} "
            f"{bytes_text(listing.sizes[name]):>10}  {format_lsn(name.after):>17} "
            f"{format_lsn(name.last):>17}  {', '.join(notes)}".rstrip()
        )
    frontier = listing.frontier
    say(
        f"{len(listing.segments)} segments, {bytes_text(listing.total_bytes)}; "
        f"the log ends at {frontier}"
    )


def _describe(segment: Segment, name: SegmentName, limit: int, table: str | None) -> Iterator[str]:
    columns = segment.rows.to_pydict()
    counts = Counter(columns["commit_lsn"])
    commit_lsn = None
    shown = 0
    for index in range(segment.rows.num_rows):
        row = {key: values[index] for key, values in columns.items()}
        if row["commit_lsn"] != commit_lsn:
            commit_lsn = row["commit_lsn"]
            shown = 0
            whole = "" if commit_lsn <= name.last else ", goes on in a later segment"
            yield (
                f"  transaction {row['xid']}, commit {format_lsn(commit_lsn)} at "
                f"{row['commit_ts'].isoformat()}, {counts[commit_lsn]} changes here{whole}"
            )
        if shown >= limit:
            continue
        version = row["schema_version"]
        # A TRUNCATE has the definitions of all its tables side by side.
        definitions = segment.tables[version:] if version >= 0 else ()
        definition = definitions[0] if definitions else None
        if table is not None and (definition is None or definition.qualified_name != table):
            continue
        shown += 1
        yield f"    {row['ordinal']:>6} {_change(row['payload'], definition, definitions)}"


def _change(payload: bytes, table: TableSchema | None, definitions: Sequence[TableSchema]) -> str:
    if payload[0] == SCHEMA_CHANGE:
        return f"schema change {payload[1:].decode()}"
    message = parse_message(payload)
    if isinstance(message, Truncate):
        named = definitions[: len(message.relations)]
        return f"truncate {', '.join(definition.qualified_name for definition in named)}"
    if isinstance(message, LogicalMessage):
        return f"message {message.prefix!r} {message.content!r}"
    if table is None:
        return f"{type(message).__name__} of an unknown table"
    if isinstance(message, Insert):
        return f"insert {table.qualified_name} {_row(message.new, table)}"
    if isinstance(message, Update):
        old = "" if message.old is None else f" old {_row(message.old, table, message.old_kind)}"
        return f"update {table.qualified_name} {_row(message.new, table)}{old}"
    if isinstance(message, Delete):
        return f"delete {table.qualified_name} {_row(message.old, table, message.old_kind)}"
    return type(message).__name__


def _row(values: tuple[Value, ...], table: TableSchema, kind: str | None = None) -> str:
    shown: dict[str, Any] = {}
    for value, column in zip(values, table.columns, strict=True):
        if kind == "key" and not column.is_key:
            continue
        if isinstance(value, bytes):
            shown[column.name] = value.decode(errors="replace")
        else:
            shown[column.name] = "(unset)" if value is UNSET else None
    return json.dumps(shown, ensure_ascii=False)
