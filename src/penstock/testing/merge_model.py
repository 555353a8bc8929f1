"""What a merging destination must hold: changes applied one by one, in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.destination.memory import MemoryChange, Row, TableName

Key = tuple[str | None, ...]
FrozenRow = tuple[tuple[str, str | None], ...]


def frozen(row: Row) -> FrozenRow:
    return tuple(sorted(row.items()))


class MergeModel:
    """Tables by name, each with the columns that identify a row; none of them: a multiset.

    Takes only what a source can send: a change of a row that is not there fails.
    """

    def __init__(self, keys: Mapping[TableName, Sequence[str]]) -> None:
        self._keys = {name: tuple(key) for name, key in keys.items()}
        self._keyed: dict[TableName, dict[Key, Row]] = {name: {} for name in keys}
        self._counted: dict[TableName, Counter[FrozenRow]] = {name: Counter() for name in keys}

    def apply(self, changes: Iterable[MemoryChange]) -> None:
        for change in changes:
            if change.op == "truncate":
                for name in change.tables:
                    self._keyed[name].clear()
                    self._counted[name].clear()
            elif change.op != "message":
                (name,) = change.tables
                if self._keys[name]:
                    self._keyed_change(name, change)
                else:
                    self._counted_change(name, change)

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        """The rows that are left, and how many of each."""
        if self._keys[name]:
            return Counter(map(frozen, self._keyed[name].values()))
        return +self._counted[name]

    def _keyed_change(self, name: TableName, change: MemoryChange) -> None:
        rows, columns = self._keyed[name], self._keys[name]

        def key(row: Row) -> Key:
            return tuple(row[column] for column in columns)

        before: Row = {}
        if change.op != "insert":
            # Without an old image the key has not changed.
            known = change.new if change.old is None else change.old
            assert known is not None
            before = rows.pop(key(known))
        if change.new is not None:
            # A column that was not sent stays what it was.
            after = {**before, **change.new}
            assert key(after) not in rows
            rows[key(after)] = after

    def _counted_change(self, name: TableName, change: MemoryChange) -> None:
        rows = self._counted[name]
        if change.old is not None:
            assert rows[frozen(change.old)] > 0
            rows[frozen(change.old)] -= 1
        if change.new is not None:
            rows[frozen(change.new)] += 1
