"""`penstock tables add` and `remove`: exceptions from the patterns, by name."""

from __future__ import annotations

from penstock.cli.pipeline_argument import PipelineFile
from penstock.cli.tables.steering import TableNames, steer


def add(file: PipelineFile, tables: TableNames) -> None:
    """Follow tables that the patterns of the pipeline file do not match, or that were removed.

    The rule is kept in the pipeline's store; the file is not changed. It wins over include and
    exclude until `tables remove` takes it back. Rows that exist are copied first, unless the file
    says `copy: false`. If one of the tables cannot be followed, nothing is changed.

    \b
    Example:
      penstock tables add shop.yaml archive.orders
      penstock tables add shop.yaml '"My Schema"."a.b"' items
    """
    steer("add", file, tables)


def remove(file: PipelineFile, tables: TableNames) -> None:
    """Follow tables no longer, also where the patterns of the pipeline file match them.

    The rule is kept in the pipeline's store; the file is not changed. It wins over include and
    exclude until `tables add` takes it back. What becomes of the table at the destination is said
    by source.tables.on_remove.

    \b
    Example:
      penstock tables remove shop.yaml public.audit_2019
      penstock tables add shop.yaml public.audit_2019      follows it again, with a new copy
    """
    steer("remove", file, tables)
