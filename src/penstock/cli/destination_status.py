"""What `penstock status` says of each destination, where a file has several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.terminal import say
from penstock.model.lsn import format_lsn
from penstock.model.quantity_text import bytes_text
from penstock.operations.log_readers import unnamed_readers

if TYPE_CHECKING:
    from penstock.changelog.status import LogStatus
    from penstock.config import PipelineConfig
    from penstock.pipeline.tables.table_status import TableStatus


def show_destination(config: PipelineConfig, log: LogStatus) -> None:
    """Where it stands, and how much of the log waits for it."""
    name = f"destination   {config.destination_name} ({config.destination_type})"
    reader = log.readers.get(config.delivery)
    if reader is None:
        say(f"{name} has never run; the change log is kept for it")
        say(f"              `penstock run FILE --only {config.destination_name}` starts it alone")
        return
    by = f", as {reader.by} said" if reader.by else ""
    if reader.frontier == reader.begin:
        by += "; nothing was delivered yet"
    say(f"{name} holds {reader.frontier}{by}")
    say(f"              {bytes_text(log.waiting[config.delivery])} of the change log wait for it")


def destination_json(config: PipelineConfig, log: LogStatus, tables: TableStatus) -> dict[str, Any]:
    """The same for other programs."""
    reader = log.readers.get(config.delivery)
    return {
        "type": config.destination_type,
        "reader": config.delivery,
        "end_lsn": None if reader is None else format_lsn(reader.frontier.end_lsn),
        "waiting_bytes": log.waiting.get(config.delivery),
        "tables": tables.to_json(),
    }


def show_unnamed(config: PipelineConfig, log: LogStatus) -> None:
    """What to do about each of them."""
    for name in unnamed_readers(config, log):
        say(
            f"not in file   destination {name} reads the change log, which is kept for it; "
            f"`penstock destroy FILE --only {name}` gives it up, or write it into the file again"
        )
