"""The pieces in which tables are copied. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.stored import Stored


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


@dataclass(frozen=True)
class CopyPlan(Stored):
    """All chunks of one table.

    ``where`` is SQL: the publication's row filter and what the pipeline file says, both; None for
    all rows. ``columns`` are the columns that the stream sends, in the table's order. ``files`` are
    relations with the files that they got since, by changes that the stream told of.
    """

    table: int
    columns: tuple[str, ...]
    where: str | None
    chunks: tuple[Chunk, ...]
    files: Mapping[int, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def leaf_files(self) -> dict[int, int]:
        """The file node of each relation, as far as it is known."""
        return {**{chunk.relation: chunk.file for chunk in self.chunks}, **self.files}
