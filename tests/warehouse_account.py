"""How the contract suite reads back what a real warehouse holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.destination.contract import Destination
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.testing import Adapter, FrozenRow, TableName, frozen


class AccountAdapter(Adapter):
    """``new`` makes a destination; ``emptied`` are the statements that make room for the suite."""

    keeps = "rows"
    keeps_messages = False
    follows_columns = False

    def __init__(self, new: Callable[[], WarehouseDestination], *emptied: str) -> None:
        self._new = new
        self._made = [new()]
        for statement in emptied:
            self._made[0].session.run(statement)
        stage = self._made[0].stage
        stage.forget_notes(stage.drivers())

    def make(self) -> Destination:
        self._made.append(self._new())
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        destination = self._made[-1]
        known = destination.ledger.read("table/").values()
        (target,) = (
            each for each in map(Target.from_text, known) if (each.schema, each.name) == name
        )
        columns = ", ".join(destination.dialect.columns(target))
        found = destination.session.rows(
            f"SELECT {columns} FROM {destination.dialect.table(target)}"  # noqa: S608 (quoted)
        )
        return Counter(
            frozen(
                {
                    column: None if value is None else str(value)
                    for column, value in zip(target.columns, row, strict=False)
                }
            )
            for row in found
        )

    def close(self) -> None:
        for destination in self._made:
            destination.close()
