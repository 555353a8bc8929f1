"""The pieces in which tables are copied. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Chunk:
    """A range of blocks of one relation: the followed table itself or one of its partitions.

    ``number`` counts the chunks of a table's copy from 0. ``end_block`` is None for the last one of
    a relation: rows may have come behind what was there when the copy was planned. ``file`` is the
    relation's file node: with another one, blocks mean something else and the table starts again.
    ``bytes`` is about how much it holds, TOAST included.
    """

    table: int
    number: int
    relation: int
    schema: str
    name: str
    file: int
    first_block: int
    end_block: int | None
    bytes: int

    @property
    def key(self) -> str:
        """What a destination knows it by among the chunks of the table."""
        return str(self.number)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Chunk:
        return cls(**value)


@dataclass(frozen=True)
class CopyPlan:
    """All chunks of one table.

    ``where`` is SQL: the publication's row filter and what the pipeline file says, both; None for
    all rows. ``columns`` are the columns that the stream sends, in the table's order.
    """

    table: int
    columns: tuple[str, ...]
    where: str | None
    chunks: tuple[Chunk, ...]

    @property
    def bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "columns": list(self.columns),
            "where": self.where,
            "chunks": [chunk.to_json() for chunk in self.chunks],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CopyPlan:
        return cls(
            value["table"],
            tuple(value["columns"]),
            value["where"],
            tuple(Chunk.from_json(chunk) for chunk in value["chunks"]),
        )
