"""`penstock status`: how the pipeline stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.destination_status import (
    destination_json,
    show_destination,
    show_unnamed,
)
from penstock.cli.pipeline_argument import OneDestination, PipelineFile, chosen_deliveries
from penstock.cli.terminal import say
from penstock.model.lsn import format_lsn
from penstock.model.quantity_text import bytes_text
from penstock.operations.log_readers import unnamed_readers

if TYPE_CHECKING:
    from penstock.changelog.status import LogStatus
    from penstock.config import PipelineConfig
    from penstock.pipeline.tables.table_status import TableStatus
    from penstock.source.postgres.source_status import SourceStatus


def status(
    file: PipelineFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, for other programs.")
    ] = False,
    only: OneDestination = None,
) -> None:
    """Show publication, slot, and how far the pipeline is behind; of several destinations, each.

    Exits with 1 when the slot is missing or lost, since the pipeline cannot go on then.

    \b
    Example:
      penstock status shop.yaml
      penstock status shop.yaml --json | jq .source.lag_bytes
      penstock status shop.yaml --only warehouse
    """
    from penstock.changelog.changelog import ChangeLog
    from penstock.changelog.status import read_log_status
    from penstock.model.topic_status import TopicStatus
    from penstock.pipeline.tables.table_status import read_table_status
    from penstock.source.registry import read_status

    views = chosen_deliveries(file, only)
    config = views[0]
    source = read_status(config)
    log = read_log_status(ChangeLog.of(config.change_log))
    tables = {view.destination_name: read_table_status(view) for view in views}
    if as_json:
        parts: dict[str, Any] = {
            "pipeline": config.name,
            "source": source.to_json(),
            "log": log.to_json(),
        }
        if config.is_one_of_many:
            parts["destinations"] = {
                view.destination_name: destination_json(view, log, tables[view.destination_name])
                for view in views
            }
            parts["unnamed_readers"] = unnamed_readers(config, log)
        else:
            parts["tables"] = tables[""].to_json()
        say(json.dumps(parts, indent=2))
    else:
        if isinstance(source, TopicStatus):
            say("\n".join([f"pipeline      {config.name}", *source.lines()]))
        else:
            _show(config.name, source)
        _show_log(log, config)
        for view in views:
            if view.is_one_of_many:
                show_destination(view, log)
            _show_tables(tables[view.destination_name])
        show_unnamed(config, log)
    if not isinstance(source, TopicStatus) and source.is_broken:
        raise typer.Exit(1)


def _show(name: str, source: SourceStatus) -> None:
    say(f"pipeline      {name}: {source.state}")
    if source.subscription is None:
        say("              `penstock init` or `penstock run` creates publication and slot")
        return
    say(
        f"publication   {source.subscription.publication}, {len(source.subscription.tables)} tables"
    )
    if source.slot is None:
        say(f"slot          {source.subscription.slot} does not exist")
        return
    reader = f"read by backend {source.slot.active_pid}" if source.slot.active else "not being read"
    say(f"slot          {source.slot.name}, {reader}, WAL {source.slot.wal_status}")
    if source.slot.invalidation_reason:
        say(f"              lost: {source.slot.invalidation_reason}")
    if source.slot.confirmed_flush is not None:
        say(f"confirmed     {format_lsn(source.slot.confirmed_flush)}")
    say(f"source is at  {format_lsn(source.current_wal)}")
    say(f"lag           {bytes_text(source.lag_bytes)}")
    say(f"WAL retained  {bytes_text(source.retained_bytes)}")
    if source.slot.safe_wal_size is not None:
        say(f"until lost    {bytes_text(source.slot.safe_wal_size)} more WAL")


def _show_tables(tables: TableStatus) -> None:
    for problem in tables.problems:
        say(f"unknown       {problem}")
    if tables.phases:
        counts = ", ".join(f"{count} {phase}" for phase, count in tables.phases.items())
        say(f"tables        {counts}")
    for table, copy in tables.copies.items():
        left = copy.remaining_seconds
        say(
            f"copying       {table}: {copy.phase}, {bytes_text(copy.bytes_done)} of about "
            f"{bytes_text(copy.bytes)}, {copy.rows:,} rows"
            + ("" if left is None or not left else f", about {left:.0f} s left")
        )
    for worker in tables.workers:
        doing = worker["doing"] or "idle"
        if not worker["is_alive"]:
            doing = f"not heard of for {worker['silent_seconds']:.0f} s"
        say(
            f"worker        {worker['host']}, process {worker['pid']}: {doing}; "
            f"{worker['rows']:,} rows so far"
        )
    for table, reason in tables.errored.items():
        say(f"errored       {table}: {reason}")
    for table, notes in tables.notes.items():
        for note in notes:
            say(f"note          {table}: {note}")
    for each in tables.unrestored:
        say(f"not restored  {each['title']}: {each['why']}")
    for table, count in tables.dead_letters.items():
        say(f"dead letters  {count} of {table}")


def _show_log(log: LogStatus, config: PipelineConfig) -> None:
    if log.frontier is None:
        say("change log    empty")
    else:
        say(f"change log    {log.segments} segments, {bytes_text(log.total_bytes)}")
        say(f"log ends at   {format_lsn(log.frontier.end_lsn)}")
    destinations = config.deliveries.values() if config.is_one_of_many else ()
    for name, reader in log.readers.items():
        if name in destinations:
            continue  # each is shown with what else is known of it
        by = f", as {reader.by} said" if reader.by else ""
        say(f"reader        {name} holds {reader.frontier}{by}")
    if log.capture is not None:
        said = log.capture.get("error")
        host = log.capture.get("host")
        who = f", process {log.capture['pid']} on {host}" if host else ""
        say(f"capture       {log.capture['state']}{who}" + (f": {said}" if said else ""))
        if "full" in log.capture:
            say(f"              {log.capture['full']}")
        if "waits" in log.capture:
            say(f"              {log.capture['waits']}")
