"""What a task tells the driver of the files that it staged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple

from penstock.model.lsn import Frontier

Kind = Literal["keyed", "counted", "replayed", "changes"]
"""keyed: net rows; counted: of a table without a key; replayed: one row a key, over copied rows;
changes: every change, as rows of a change table.
"""


@dataclass(frozen=True)
class MergePart:
    """A file with rows of one table that nothing has joined with others yet. ``unfit`` is how many
    values of a column did not fit its type, and became others.
    """

    table: int
    file: str
    kind: Kind
    rows: int
    unfit: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """First tables were emptied (by oid), then rows came; those that came before are left out."""

    emptied: tuple[int, ...] = ()
    parts: tuple[MergePart, ...] = ()


@dataclass(frozen=True)
class MergeBatch:
    """What one task staged or, once read, what all tasks of a batch did, in position order."""

    runs: tuple[Run, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps([asdict(run) for run in self.runs]).encode()

    @classmethod
    def from_bytes(cls, receipts: Sequence[bytes]) -> MergeBatch:
        runs = [run for receipt in receipts for run in json.loads(receipt)]
        return cls(
            tuple(
                Run(tuple(run["emptied"]), tuple(MergePart(**part) for part in run["parts"]))
                for run in runs
            )
        )

    @property
    def files(self) -> list[str]:
        return [part.file for run in self.runs for part in run.parts]

    def without(self, tables: Collection[int]) -> MergeBatch:
        """What it holds of other tables than these."""
        return MergeBatch(
            tuple(
                Run(
                    tuple(table for table in run.emptied if table not in tables),
                    tuple(part for part in run.parts if part.table not in tables),
                )
                for run in self.runs
            )
        )

    def touched(self) -> dict[int, tuple[bool, list[MergePart]]]:
        """Of each table whether it is emptied first, and its parts that count after that."""
        found: dict[int, tuple[bool, list[MergePart]]] = {}
        for run in self.runs:
            for table in run.emptied:
                found[table] = (True, [])
            for part in run.parts:
                found.setdefault(part.table, (False, []))[1].append(part)
        return found


@dataclass(frozen=True)
class StagedChunk:
    """What a task tells of a chunk of copied rows. ``copy`` is which copy of the table it is of;
    ``again`` as ``chunk_writer`` has it.
    """

    table: int
    copy: str
    chunk: str
    file: str
    again: bool
    rows: int
    unfit: dict[str, int] = field(default_factory=dict)

    @property
    def mark(self) -> int:
        """A number that no other chunk has, as large as tables take it."""
        digest = hashlib.sha256(f"{self.copy}\0{self.chunk}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> StagedChunk:
        return cls(**json.loads(content))


class Mark(NamedTuple):
    """How far a table has come: to a frontier, but for ``lacking`` sections of the transaction that
    it ends with, between whose schema changes rows stand. ``commit`` counts the pipeline's commits:
    one that was not finished comes again under the same number.
    """

    frontier: Frontier
    lacking: int = 0
    commit: int = 0

    def holds(self, other: Mark) -> bool:
        """Whether all that ``other`` says is there: it is of the same commit, and comes again. What
        earlier commits left nobody sends again.
        """
        if self.commit < other.commit:
            return False
        return self.frontier > other.frontier or self.reaches(other)

    def reaches(self, other: Mark) -> bool:
        """Whether both end with one transaction, and this one lacks no more of it. Of a table whose
        changes in it are not finished that tells that all is there, whichever commit brought it.
        """
        return self.frontier == other.frontier and self.lacking <= other.lacking
