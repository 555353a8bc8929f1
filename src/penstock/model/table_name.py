"""What a table is called."""

from __future__ import annotations

from typing import NamedTuple


class TableName(NamedTuple):
    """A table's schema and name, as the catalogue holds them."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"
