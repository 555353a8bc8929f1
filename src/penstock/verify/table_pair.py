"""What is compared with what."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.table_name import TableName


class TablePair(NamedTuple):
    """A table of the source and the one that holds its rows at the destination.

    ``columns`` have the same names on both sides; ``key`` is empty where nothing but its values
    tells a row.
    """

    source: TableName
    target: TableName
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        same = self.source == self.target
        return str(self.source) if same else f"{self.source} → {self.target}"
