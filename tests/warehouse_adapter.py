"""How the contract suite reads back what stand-ins for warehouses hold: rows, change tables (`mode:
append`) and the views over them.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from penstock.destination.contract import Destination
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.testing import Adapter, FrozenRow, TableName, frozen
from tests.lake_changes import ChangeTables, Keeps


class WarehouseAdapter(Adapter):
    """``new`` makes a destination."""

    keeps: ClassVar[Keeps] = "rows"
    keeps_messages = False
    follows_columns = False
    mode: ClassVar[str] = "merge"

    def __init__(self, new: Callable[[], WarehouseDestination]) -> None:
        self._new = new
        self._made: list[WarehouseDestination] = []

    @abstractmethod
    def read(self, relation: TableName) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        """The columns and rows of a table or view, whose name is the source's."""

    def make(self) -> Destination:
        self._made.append(self._new())
        return self._made[-1]

    def targets(self) -> Iterator[Target]:
        """The tables that are there."""
        return map(Target.from_text, self._made[-1].ledger.read("table/").values())

    def relation(self, name: TableName) -> TableName:
        """Where the rows of a table are read from."""
        return name

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        (target,) = (each for each in self.targets() if (each.schema, each.name) == name)
        called = {self._made[-1].dialect.named(column): column for column in target.columns}
        names, found = self.read(self.relation(name))
        return Counter(
            frozen(
                {
                    called[column]: _text(value)
                    for column, value in zip(names, row, strict=True)
                    if column in called
                }
            )
            for row in found
        )

    def close(self) -> None:
        for destination in self._made:
            destination.close()


class WarehouseChanges(ChangeTables):
    """Reads change tables. In front of a WarehouseAdapter."""

    keeps: ClassVar[Keeps] = "changes"
    mode: ClassVar[str] = "append"
    targets: Callable[[], Iterator[Target]]

    def change_tables(self) -> Iterator[tuple[TableName, list[dict[str, Any]]]]:
        for target in self.targets():
            name = target.schema, target.name
            rows = [dict(row) for row in self.rows(name).elements()]
            yield name, [{**row, "_unset": _listed(row["_unset"])} for row in rows]


class WarehouseLatest:
    """Reads the views over change tables. In front of a WarehouseAdapter."""

    mode: ClassVar[str] = "append"

    def relation(self, name: TableName) -> TableName:
        return f"{name[0]}_latest", name[1]


def _text(value: object) -> str | None:
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    return None if value is None else str(value)


def _listed(text: str | None) -> str | None:
    return None if text is None else f"[{', '.join(json.loads(text))}]"
