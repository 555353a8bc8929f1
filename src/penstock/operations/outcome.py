"""What an operation on tables says when it is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableOutcome:
    """What became of one table, in words that follow its name."""

    table: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """What became of the tables, and what happens next; ``note`` is empty where nothing does."""

    tables: tuple[TableOutcome, ...]
    note: str
