"""Random histories of a table that a source could have had, as changes cut at random places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from penstock.decode.changes import ChangeSet
from penstock.testing.change_builder import UNSET, ChangeBuilder, Table

Key = tuple[str, ...]
Values = list[str | None]


@dataclass(frozen=True)
class Step:
    """What to do next; numbers are taken modulo what there is, so that every step is possible."""

    kind: str
    row: int
    key: int
    values: tuple[int, ...]
    unset: int
    cut: str


def steps(max_size: int, kinds: Sequence[str]) -> st.SearchStrategy[list[Step]]:
    number = st.integers(0, 11)
    cut = st.sampled_from(["", "", "", "run", "task", "batch"])
    return st.lists(
        st.builds(
            Step,
            st.sampled_from(kinds),
            number,
            number,
            st.tuples(number, number, number),
            st.integers(0, 7),
            cut,
        ),
        max_size=max_size,
    )


ALL = ("insert", "insert", "update", "update", "rekey", "rekey", "delete", "swap", "touch")
"""What happens to tables with a key. A rekey may take a key that was just left."""


@dataclass
class Batch:
    """Tasks, each with its runs."""

    tasks: list[list[ChangeSet]] = field(default_factory=list)


@dataclass(frozen=True)
class KeyedKind:
    """A table with a key, the keys that its rows take, and the values of its other columns.

    ``same`` gives one value for all texts of a key that the type takes for equal.
    """

    table: Table
    keys: Sequence[Key]
    values: Sequence[str | None]
    same: Callable[[Key], object] = lambda key: key


class KeyedHistory:
    """Writes what Postgres would send under the table's replica identity."""

    def __init__(self, kind: KeyedKind, builder: ChangeBuilder) -> None:
        self._kind = kind
        self._builder = builder
        self._width = len(kind.table.columns)
        self._places = [i for i, column in enumerate(kind.table.columns) if column.key]
        self._rows: list[Values] = []

    def step(self, step: Step) -> None:
        action = getattr(self, f"_{step.kind}")
        action(step)

    def _insert(self, step: Step) -> None:
        key = self._free_key(step.key)
        if key is not None:
            row = self._row(key, step)
            self._rows.append(row)
            self._builder.insert(self._kind.table, *row)

    def _update(self, step: Step) -> None:
        if self._rows:
            place = step.row % len(self._rows)
            self._change(place, self._key(self._rows[place]), step)

    def _touch(self, step: Step) -> None:
        """An update that changes nothing."""
        if self._rows:
            row = self._rows[step.row % len(self._rows)]
            full = row if self._kind.table.identity == "f" else None
            self._builder.update(self._kind.table, *row, full=full)

    def _rekey(self, step: Step) -> None:
        if self._rows:
            place = step.row % len(self._rows)
            key = self._free_key(step.key, but=place)
            if key is not None:
                self._change(place, key, step)

    def _swap(self, step: Step) -> None:
        """Two rows exchange their keys through a third."""
        free = self._free_key(step.key)
        if free is None or len(self._rows) < 2:
            return
        one, other = step.row % len(self._rows), (step.row + 1) % len(self._rows)
        first, second = self._key(self._rows[one]), self._key(self._rows[other])
        for place, key in ((one, free), (other, first), (one, second)):
            self._change(place, key, step)

    def _delete(self, step: Step) -> None:
        if not self._rows:
            return
        row = self._rows.pop(step.row % len(self._rows))
        if self._kind.table.identity == "f":
            self._builder.delete(self._kind.table, full=row)
        else:
            self._builder.delete(self._kind.table, key=self._identity(row))

    def _truncate(self, _step: Step) -> None:
        self._rows.clear()
        self._builder.truncate(self._kind.table)

    def _change(self, place: int, key: Key, step: Step) -> None:
        before, after = self._rows[place], self._row(key, step)
        sent: list[object] = list(after)
        for index in range(self._width):
            if index not in self._places and step.unset >> (index % 3) & 1:
                after[index] = before[index]
                sent[index] = UNSET
        self._rows[place] = after
        old: dict[str, Values] = {}
        if self._kind.table.identity == "f":
            old["full"] = before
        elif self._key(before) != self._key(after):
            old["key"] = self._identity(before)
        self._builder.update(self._kind.table, *sent, **old)  # type: ignore[arg-type]

    def _free_key(self, number: int, but: int = -1) -> Key | None:
        taken = {self._kind.same(self._key(r)) for i, r in enumerate(self._rows) if i != but}
        free = [key for key in self._kind.keys if self._kind.same(key) not in taken]
        return free[number % len(free)] if free else None

    def _row(self, key: Key, step: Step) -> Values:
        numbers = iter(step.values * self._width)
        row: Values = [
            self._kind.values[next(numbers) % len(self._kind.values)] for _ in range(self._width)
        ]
        for place, part in zip(self._places, key, strict=True):
            row[place] = part
        return row

    def _key(self, row: Values) -> Key:
        return tuple(str(row[place]) for place in self._places)

    def _identity(self, row: Values) -> Values:
        return [value if i in self._places else None for i, value in enumerate(row)]


class KeylessHistory:
    """A table under REPLICA IDENTITY FULL whose rows may be equal."""

    def __init__(self, table: Table, values: Sequence[str | None], builder: ChangeBuilder) -> None:
        self._table = table
        self._values = values
        self._builder = builder
        self._rows: list[Values] = []

    def step(self, step: Step) -> None:
        if step.kind == "truncate":
            self._rows.clear()
            self._builder.truncate(self._table)
        elif step.kind == "insert" or not self._rows:
            self._rows.append(self._row(step))
            self._builder.insert(self._table, *self._rows[-1])
        elif step.kind == "delete":
            row = self._rows.pop(step.row % len(self._rows))
            self._builder.delete(self._table, full=row)
        else:
            place = step.row % len(self._rows)
            before, after = self._rows[place], self._row(step)
            sent: list[object] = list(after)
            if step.unset & 1:
                after[-1] = before[-1]
                sent[-1] = UNSET
            self._rows[place] = after
            self._builder.update(self._table, *sent, full=before)  # type: ignore[arg-type]

    def _row(self, step: Step) -> Values:
        width = len(self._table.columns)
        return [self._values[n % len(self._values)] for n in (step.values * width)[:width]]


def batches(
    plan: Sequence[Step], history: KeyedHistory | KeylessHistory, builder: ChangeBuilder
) -> list[Batch]:
    """The changes that the plan makes, each step a transaction, cut where the plan says so."""
    found = [Batch([[]])]
    for step in plan:
        with builder.transaction():
            history.step(step)
        if step.cut:
            found[-1].tasks[-1].append(builder.cut())
        if step.cut == "task":
            found[-1].tasks.append([])
        elif step.cut == "batch":
            found.append(Batch([[]]))
    found[-1].tasks[-1].append(builder.cut())
    return found
