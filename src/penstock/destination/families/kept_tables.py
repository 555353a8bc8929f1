"""The driver's side of what families share that hold the current rows of tables."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from penstock.destination.contract import Destination, SchemaChange
from penstock.destination.families.ledger import Ledger
from penstock.destination.families.staged_merge.unfit_policy import Unfit
from penstock.destination.families.target import Target
from penstock.destination.protocols import (
    FollowsSchema,
    HoldsTables,
    TablesFailAlone,
    TakesCopies,
)
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition

Notes = dict[str, str | None]
Key = tuple[str, ...]


class KeptTables(Destination, TakesCopies, HoldsTables, FollowsSchema, TablesFailAlone):
    """Makes tables, remembers in the ledger what they are like, and lets them follow the source."""

    def __init__(self, options: object, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._driver = 0
        # Replaced, never changed: other threads read it while tables are prepared.
        self._targets: dict[int, Target] = {}
        self._lock = threading.RLock()

    # -- what a member says ----------------------------------------------------------------------

    @property
    @abstractmethod
    def ledger(self) -> Ledger: ...

    @abstractmethod
    def create(self, table: TableDefinition, target: Target) -> None:
        """Make an empty table. Raises TableRefused where it cannot."""

    @abstractmethod
    def drop(self, target: Target) -> None:
        """Remove a table with its rows, if it is there."""

    @abstractmethod
    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        """Follow a schema change of a table. Called again after a crash. Raises TableRefused."""

    @property
    def unfit_policy(self) -> Unfit:
        """What becomes of values that a type cannot hold."""
        return "refuse"

    def transaction(self) -> AbstractContextManager[object]:
        """All that happens inside is committed together with what the ledger is told."""
        return nullcontext()

    # -- what the base does ----------------------------------------------------------------------

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        with self._changing() as notes:
            known, left = self._known(), self._left()
            targets = {}
            for table in definitions:
                there = known.get(table.oid) or self._left_for(table, left)
                held, target = self._held_as(table, there)
                targets[table.oid] = target
                if there is None:
                    self.create(held, target)
                elif not self._fits(there, target):
                    raise TableRefused(
                        f"table {target.qualified_name} is another at the destination: it has the "
                        f"columns {', '.join(there.columns)}",
                        remedy=f"run `penstock tables resync` for {target.qualified_name}",
                        table=table.oid,
                    )
                if table.oid not in known:
                    self._note_table(target, left, notes)
        self._set_targets(targets)

    def _set_targets(self, targets: Mapping[int, Target], gone: Collection[int] = ()) -> None:
        """Put them beside the others. Several threads do: what one has set no other one loses."""
        with self._lock:
            all_of_them = {**self._targets, **targets}
            self._targets = {oid: t for oid, t in all_of_them.items() if oid not in gone}

    def _held_as(
        self, table: TableDefinition, there: Target | None
    ) -> tuple[TableDefinition, Target]:
        """The destination's table for one of the source, where ``there`` is what it is so far."""
        return table, Target.of(table)

    def _fits(self, there: Target, target: Target) -> bool:
        """Whether rows of ``target`` can come into what is there."""
        return there == target

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        """Never: it makes its tables itself. A member that takes over tables asks them."""
        return False

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        with self._changing() as notes:
            left, target = self._left(), Target.of(table)
            places = self._places_before(table, left)
            if places and [*places] != [target]:
                for place in places:
                    self.drop(place)
                self.create(table, target)
                self._note_table(target, left, notes)

    def finish_copy(self, table: TableDefinition) -> None:
        """Nothing. A member that keeps statistics makes them here."""

    def complete_table(self, table: TableDefinition) -> None:
        """Nothing."""

    def drop_table(self, table: TableDefinition) -> None:
        with self._changing() as notes:
            for place in self._places(table.oid) or _only(self._left().get(table.oid)):
                self.drop(place)
            self._forget_copy(table, notes)
            notes[f"table/{table.oid}"] = notes[f"left/{table.oid}"] = None
        self._set_targets({}, gone=[table.oid])

    def let_go(self, table: TableDefinition) -> None:
        """What it was like is kept apart from what is followed, for the case that it comes back."""
        with self._changing() as notes:
            if (there := self._known().get(table.oid)) is not None:
                notes[f"left/{table.oid}"] = there.to_text()
                notes[f"table/{table.oid}"] = None
        self._set_targets({}, gone=[table.oid])

    def _left(self) -> dict[int, Target]:
        """Tables that were let go, as long as no other one has their names."""
        return _targets_of(self.ledger.read("left/"))

    def _left_for(self, table: TableDefinition, left: Mapping[int, Target]) -> Target | None:
        """What a table that comes back was when it was let go."""
        return left.get(table.oid)

    def _places_before(
        self, table: TableDefinition, left: Mapping[int, Target]
    ) -> Sequence[Target]:
        """What a table is at the destination, or was when it was let go."""
        return self._places(table.oid) or _only(self._left_for(table, left))

    def _place(self, target: Target) -> object:
        """Where a table is: of two with the same one, there can be one."""
        return target.schema, target.name

    def _note_table(self, target: Target, left: Mapping[int, Target], notes: Notes) -> None:
        """Note that a table is there. One that was let go, and was in its place, is no longer."""
        notes[f"table/{target.oid}"] = target.to_text()
        for oid, former in left.items():
            if oid == target.oid:
                notes[f"left/{oid}"] = None
            elif self._place(former) == self._place(target):
                notes[f"left/{oid}"] = None
                self._forget_copy(former, notes)

    def notes(self, table: int) -> Sequence[str]:
        what = "null" if self.unfit_policy == "null" else "null or the nearest value"
        return [
            f"column {column}: values that do not fit its type became {what}"
            for column in sorted(self.unfit_values(table))
        ]

    def unfit_values(self, table: int) -> dict[str, int]:
        """How many values of each column became others."""
        prefix = f"unfit/{table}/"
        found = self.ledger.read(prefix)
        return {name.removeprefix(prefix): int(count) for name, count in found.items()}

    def _note_unfit(self, table: int | str, unfit: Mapping[str, int], notes: Notes) -> None:
        for column, count in unfit.items():
            name = f"unfit/{table}/{column}"
            before = notes.get(name) or self.ledger.read(name).get(name, "0")
            notes[name] = str(int(before) + count)

    def forget(self) -> Sequence[str]:
        return ["its ledger"] if self.ledger.forget() else []

    def parked_keys(self, table: int) -> Sequence[Key]:
        """For those that take replays."""
        prefix = f"parked/{table}/"
        return [tuple(json.loads(name.removeprefix(prefix))) for name in self.ledger.read(prefix)]

    def _forget_copy(self, table: TableDefinition | Target, notes: Notes) -> None:
        for kind in ("altered", "begun", "copy", "chunk", "loaded", "parked", "unfit"):
            notes.update(dict.fromkeys(self.ledger.read(f"{kind}/{table.oid}/")))

    def _alter(self, change: SchemaChange, targets: Mapping[int, Target], notes: Notes) -> None:
        """Let the tables follow that the change touches, of those in ``targets``."""
        left = self._left()
        for oid, (table, after) in self._followed(change, targets).items():
            self.alter(table, targets[oid], after)
            self._note_table(after, left, notes)

    def _followed(
        self, change: SchemaChange, targets: Mapping[int, Target]
    ) -> dict[int, tuple[TableChange, Target]]:
        """Of the tables that a change touches and that are followed, what becomes of them."""
        found = {table.oid: table for table in change.tables}
        return {oid: (found[oid], after) for oid, after in after_change(change, targets).items()}

    @contextmanager
    def _changing(self) -> Iterator[Notes]:
        """Fence first, then what the block does, then the notes that it leaves, all together."""
        with self._lock, self.transaction():
            self.ledger.write(self._driver, {})
            notes: Notes = {}
            yield notes
            self.ledger.write(self._driver, notes)

    def _places(self, table: int) -> Sequence[Target]:
        """What a table is at the destination, by its oid; more than one where it may be any of
        them, after a crash. Empty where it has none.
        """
        known = self._known()
        return [known[table]] if table in known else []

    def _known(self) -> dict[int, Target]:
        return _targets_of(self.ledger.read("table/"))


def _only(target: Target | None) -> list[Target]:
    return [] if target is None else [target]


def after_change(change: SchemaChange, targets: Mapping[int, Target]) -> dict[int, Target]:
    """The tables that a change touches and that are followed, as they are behind it."""
    return {
        table.oid: Target.of(table.after)
        for table in change.tables
        if table.before is not None and table.after is not None and table.oid in targets
    }


def _targets_of(notes: Mapping[str, str]) -> dict[int, Target]:
    return {target.oid: target for target in map(Target.from_text, notes.values())}


def parked_note(table: int | str, key: Sequence[str]) -> str:
    """The name of a note that a row is to be read again."""
    return f"parked/{table}/{json.dumps(key)}"
