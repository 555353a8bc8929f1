"""What a task tells the driver of the files that it staged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["keyed", "counted", "replayed"]
"""keyed: net rows; counted: of a table without a key; replayed: one row a key, over copied rows."""


@dataclass(frozen=True)
class Part:
    """A file with rows of one table that nothing has joined with others yet."""

    table: int
    file: str
    kind: Kind
    rows: int


@dataclass(frozen=True)
class Run:
    """First tables were emptied (by oid), then rows came; those that came before are left out."""

    emptied: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class StagedBatch:
    """What one task staged or, once read, what all tasks of a batch did, in position order."""

    runs: tuple[Run, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps([asdict(run) for run in self.runs]).encode()

    @classmethod
    def from_bytes(cls, receipts: Sequence[bytes]) -> StagedBatch:
        runs = [run for receipt in receipts for run in json.loads(receipt)]
        return cls(
            tuple(
                Run(tuple(run["emptied"]), tuple(Part(**part) for part in run["parts"]))
                for run in runs
            )
        )

    @property
    def files(self) -> list[str]:
        return [part.file for run in self.runs for part in run.parts]

    def touched(self) -> dict[int, tuple[bool, list[Part]]]:
        """Of each table whether it is emptied first, and its parts that count after that."""
        found: dict[int, tuple[bool, list[Part]]] = {}
        for run in self.runs:
            for table in run.emptied:
                found[table] = (True, [])
            for part in run.parts:
                found.setdefault(part.table, (False, []))[1].append(part)
        return found
