"""Names and texts as ClickHouse writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.destination.clickhouse.options import LEDGER_DATABASE, ClickHouseOptions
from penstock.destination.families.change_tables.definition import is_change_table
from penstock.destination.families.target import Target
from penstock.model.stored import Stored

VERSION, DELETED, ROW = "_version", "_deleted", "_row"
"""Columns of ours, beside those of the source; the last one where a table has no key."""


_LONGEST = 90


def quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


@dataclass(frozen=True)
class RowsTable(Stored):
    """Where the rows of a table are: readers see them through a view. ``number`` tells the table of
    one copy or layout from that of the next.
    """

    database: str
    base: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.base}.g{self.number}"

    @property
    def sql(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.name)}"


def view_name(options: ClickHouseOptions, schema: str, name: str) -> tuple[str, str]:
    """The database and the name that readers use."""
    return short_name(options.database.replace("{schema}", schema)), short_name(name)


def short_name(name: str) -> str:
    """The same, or where it is too long for the names of the server's files, a beginning of it and
    a hash: every byte that is no letter, digit or ``_`` counts as three there.
    """
    if len(_escaped(name)) <= _LONGEST:
        return name
    kept = name
    while len(_escaped(kept)) > _LONGEST - 11:
        kept = kept[:-1]
    return f"{kept}_{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def _escaped(name: str) -> str:
    """As the server names its files."""
    return "".join(
        sign if sign.isascii() and (sign.isalnum() or sign == "_") else "%XX" * len(sign.encode())
        for sign in name
    )


def own_comment(options: ClickHouseOptions, pipeline: str, table: int) -> str:
    """What tells tables and views that a pipeline made from those of others: one with another
    ledger is another one, whatever its name.
    """
    ledger = options.ledger_database
    place = "" if ledger == LEDGER_DATABASE else f", ledger {ledger}"
    return f"penstock: pipeline {pipeline}, table {table}{place}"


def key_names(target: Target) -> list[str]:
    """The columns that identify a row. Changes lie in the order of their positions."""
    if is_change_table(target):
        return [VERSION, ROW]
    return [target.columns[index] for index in target.key] or [ROW]
