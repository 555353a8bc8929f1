"""`penstock tables resync`, `pause`, `resume` and `cancel`: what a person wants of copies."""

from __future__ import annotations

from penstock.cli.pipeline_argument import OneDestination, PipelineFile
from penstock.cli.tables.steering import TableNames, steer


def resync(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Copy tables anew, whatever their state is: also errored ones, and those that were cancelled.

    The table's rows at the destination are replaced. Its changes wait in the change log meanwhile;
    the other tables go on.

    \b
    Example:
      penstock tables resync shop.yaml public.orders
      penstock tables resync shop.yaml orders items
    """
    steer("resync", file, tables, only)


def pause(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Let the copies of tables rest. What is copied stays; `tables resume` goes on from there.

    The changes since the copy began are still kept for it, in the change log or in the source's
    WAL: `penstock status` shows how much that is.

    \b
    Example:
      penstock tables pause shop.yaml public.orders
    """
    steer("pause", file, tables, only)


def resume(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Let paused copies go on where they stopped.

    \b
    Example:
      penstock tables resume shop.yaml public.orders
    """
    steer("resume", file, tables, only)


def cancel(file: PipelineFile, tables: TableNames, only: OneDestination = None) -> None:
    """Give the copies of tables up. Nothing of such a table is delivered until `tables resync`.

    Unlike a paused copy, it holds nothing back: a later copy begins from the start.

    \b
    Example:
      penstock tables cancel shop.yaml public.orders
      penstock tables resync shop.yaml public.orders    begins a new copy
    """
    steer("cancel", file, tables, only)
