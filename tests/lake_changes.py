"""The rows of change tables as the changes that they tell, for the contract suite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from penstock.destination.families.change_tables.definition import OWN
from penstock.model.lsn import Position
from penstock.testing import Adapter, MemoryChange, TableName, in_commit_order

Keeps = Literal["changes", "rows", "a count"]


class ChangeTables(Adapter):
    """Reads changes back from the texts of change tables; ``_unset`` is written ``[a, b]``."""

    keeps: ClassVar[Keeps] = "changes"
    keeps_messages = False
    follows_columns = False
    widens_old_rows = True
    takes_keyless = True

    def change_tables(self) -> Iterable[tuple[TableName, Iterable[Mapping[str, Any]]]]:
        raise NotImplementedError

    def delivered(self) -> list[MemoryChange]:
        return in_commit_order(change for change in self._changes() if change.op != "read")

    def copied(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op == "read"]

    def _changes(self) -> list[MemoryChange]:
        return [
            _change(name, row)
            for name, rows in self.change_tables()
            for row in rows
            if row["_op"] != "copy"
        ]


def _change(name: TableName, row: Mapping[str, Any]) -> MemoryChange:
    op = row["_op"]
    position = Position(int(row["_commit_lsn"]), int(row["_ordinal"]))
    assert (row["_commit_time"] is None) == (op == "read")
    assert (row["_xid"] is None) == (op == "read")
    values = {column: text for column, text in row.items() if column not in OWN}
    if op == "truncate":
        assert not any(values.values())
        return MemoryChange(position, op, (name,))
    old = None if row["_old"] is None else json.loads(row["_old"], parse_int=str, parse_float=str)
    if op == "delete":
        assert old is not None
        assert {column: values[column] for column in old} == old
        return MemoryChange(position, op, (name,), None, old)
    unset = [text for text in (row["_unset"] or "").strip("[]").split(", ") if text]
    assert not any(values[column] for column in unset)
    new = {column: text for column, text in values.items() if column not in unset}
    return MemoryChange(position, op, (name,), new, old)
