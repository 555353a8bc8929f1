"""What a schema change did to a table: two definitions of it, and the steps from one to the other.

A column is the same for as long as its number is; an index, a constraint or a type for as long as
its oid is (0: unknown, then its name decides). No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, TypeVar

from penstock.model.renamed_names import RenamedNames
from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    IndexDefinition,
    TableDefinition,
    TypeDefinition,
)
from penstock.model.type_change import shown_type, type_changes

ChangeKind = Literal[
    "create_table",
    "drop_table",
    "rename_table",
    "add_column",
    "drop_column",
    "rename_column",
    "column_type",
    "column_default",
    "column_nullability",
    "column_identity",
    "column_generated",
    "column_published",
    "primary_key",
    "index",
    "constraint",
    "user_type",
    "replica_identity",
    "rewrite",
    "partitions",
]
Part = TableDefinition | ColumnDefinition | IndexDefinition | ConstraintDefinition | TypeDefinition

_IDENTITIES = {"": "none", "a": "always", "d": "by default"}
_REPLICA_IDENTITIES = {"d": "default", "n": "nothing", "f": "full", "i": "an index"}

# What of a constraint or an index may become another while it stays the same one. The rest of its
# text changes only with the names in it: of columns, tables, types or functions.
_CONSTRAINT_OPTIONS = re.compile(
    r"(?: (?:NO INHERIT|DEFERRABLE|INITIALLY DEFERRED|NOT VALID|NOT ENFORCED))*$"
)
_INDEX_OPTIONS = re.compile(r" WITH \(([^()]*)\)(?= WHERE |$)")


class _Lasting(Protocol):
    """What has an oid and a name."""

    @property
    def oid(self) -> int: ...

    @property
    def name(self) -> str: ...


_L = TypeVar("_L", bound=_Lasting)
Pair = tuple[_L | None, _L | None]
"""The same thing before and after; None where it was not there."""


@dataclass(frozen=True)
class Difference:
    """One step. ``before`` and ``after`` are what it is about; None where it was not there.

    Columns, indexes, constraints and types are told as such, everything else as the whole table.
    """

    kind: ChangeKind
    before: Part | None
    after: Part | None

    @property
    def text(self) -> str:
        """One line for people."""
        return "; ".join(_words(self)) or self.kind


@dataclass(frozen=True)
class TableChange:
    """A table before and after a change; None where there was none. ``is_rewrite`` says that rows
    may have got other values, of which the stream does not tell. Columns that are ignored are none.
    """

    before: TableDefinition | None
    after: TableDefinition | None
    is_rewrite: bool = False

    @property
    def oid(self) -> int:
        known = self.after or self.before
        return 0 if known is None else known.oid

    @cached_property
    def columns(self) -> list[tuple[ColumnDefinition | None, ColumnDefinition | None]]:
        """Each column before and after the change."""
        old = {column.attnum: column for column in _columns(self.before)}
        new = {column.attnum: column for column in _columns(self.after)}
        return [(old.get(number), new.get(number)) for number in sorted({*old, *new})]

    @cached_property
    def types(self) -> list[Pair[TypeDefinition]]:
        """In an order in which they can be created; those that are no longer used come last."""
        before = () if self.before is None else self.before.types
        after = () if self.after is None else self.after.types
        # The name alone does not tell a type of one schema from that of another.
        return _paired(before, after, lambda kind: kind.qualified_name)

    @cached_property
    def indexes(self) -> list[Pair[IndexDefinition]]:
        before = () if self.before is None else self.before.indexes
        after = () if self.after is None else self.after.indexes
        return _paired(before, after, lambda index: index.name)

    @cached_property
    def constraints(self) -> list[Pair[ConstraintDefinition]]:
        before = () if self.before is None else self.before.constraints
        after = () if self.after is None else self.after.constraints
        return _paired(before, after, lambda constraint: constraint.name)

    @cached_property
    def renamed(self) -> RenamedNames:
        """The new names of columns and types that have other ones now."""
        columns = {}
        for old, new in self.columns:
            if old is not None and (new is None or old.name != new.name):
                # Another column may have taken the name of one that is gone: no name is like this.
                columns[old.name] = f"\0{old.name}" if new is None else new.name
        types: dict[tuple[str, str], tuple[str, str]] = {}
        for old_type, new_type in self.types:
            if old_type and new_type:
                types[old_type.schema, old_type.name] = (new_type.schema, new_type.name)
                if old_type.multirange:
                    multirange = (new_type.schema, new_type.multirange)
                    types[old_type.schema, old_type.multirange] = multirange
        return RenamedNames(columns, {old: new for old, new in types.items() if old != new})

    def moves_partitions(self, *, are_new: bool) -> bool:
        """Whether rows came or went with partitions; those that ``are_new`` have none yet."""
        if self.before is None or self.after is None:
            return False
        old, new = {*self.before.partitions}, {*self.after.partitions}
        return bool(old - new) or (bool(new - old) and not are_new)

    def may_rewrite(self) -> bool:
        """Whether rows may have got other values, of which nothing tells but the definitions: by a
        new type, by a new expression, or by a default that each row takes for itself.
        """
        for old, new in self.columns:
            if new is None:
                continue
            if old is None:
                is_filled = new.default is not None or new.identity or new.generated is not None
                if is_filled and new.missing is None:
                    return True
            elif self.renamed.type(old.type) != new.type or not self.renamed.is_same(
                old.generated, new.generated
            ):
                return True
        return False

    def is_changed(self, before: Part, after: Part) -> bool:
        """Whether an index, a constraint or a type has to be changed or renamed: a text that is
        another only because of what was renamed in it is not.
        """
        if isinstance(before, TypeDefinition) and isinstance(after, TypeDefinition):
            return self.renamed.definition(before, after) != after
        if isinstance(before, IndexDefinition | ConstraintDefinition) and isinstance(
            after, IndexDefinition | ConstraintDefinition
        ):
            return before.name != after.name or self.is_rebuilt(before, after)
        return before != after

    def is_rebuilt(
        self,
        before: IndexDefinition | ConstraintDefinition,
        after: IndexDefinition | ConstraintDefinition,
    ) -> bool:
        """Whether there is more to do than to rename it."""
        if before.oid and before.oid == after.oid:
            return _options(before) != _options(after)
        is_same = self.renamed.is_same(before.definition, after.definition)
        if isinstance(before, IndexDefinition) and isinstance(after, IndexDefinition):
            is_same = is_same and before.is_unique == after.is_unique
        if isinstance(before, ConstraintDefinition) and isinstance(after, ConstraintDefinition):
            is_same = is_same and (before.kind, before.references) == (after.kind, after.references)
        return not is_same or self.renamed.names(before.key) != after.key

    def differences(self) -> tuple[Difference, ...]:
        """The steps, in an order in which they can be taken: what goes, new names, what changes,
        what comes.
        """
        before, after = self.before, self.after
        if before is None or after is None:
            if before is after:
                return ()
            return (Difference("create_table" if before is None else "drop_table", before, after),)
        return tuple(self._differences(before, after))

    def _differences(self, before: TableDefinition, after: TableDefinition) -> Iterator[Difference]:
        objects = [*self._objects("constraint", self.constraints)]
        objects += self._objects("index", self.indexes)
        types = [
            Difference("user_type", old, new)
            for old, new in self.types
            if old is None or new is None or self.is_changed(old, new)
        ]
        both = [(old, new) for old, new in self.columns if old and new]
        yield from (step for step in objects if step.after is None)
        # What is generated goes before what it is made from, and comes after it.
        gone = [old for old, new in self.columns if old and not new]
        for column in sorted(gone, key=lambda column: column.generated is None):
            yield Difference("drop_column", column, None)
        if (before.schema, before.name) != (after.schema, after.name):
            yield Difference("rename_table", before, after)
        for old, new in both:
            if old.name != new.name:
                yield Difference("rename_column", old, new)
        yield from (step for step in types if step.after is not None)
        for old, new in both:
            yield from self._column_differences(old, new)
        come = [new for old, new in self.columns if new and not old]
        for column in sorted(come, key=lambda column: column.generated is not None):
            yield Difference("add_column", None, column)
        yield from (step for step in types if step.after is None)
        if self.renamed.names(before.primary_key) != after.primary_key:
            yield Difference("primary_key", before, after)
        yield from (step for step in reversed(objects) if step.after is not None)
        if self._identities(before, self.renamed) != self._identities(after, RenamedNames()):
            yield Difference("replica_identity", before, after)
        if before.partitions != after.partitions:
            yield Difference("partitions", before, after)
        if self.is_rewrite:
            yield Difference("rewrite", before, after)

    def _objects(
        self,
        kind: Literal["index", "constraint"],
        pairs: Sequence[Pair[IndexDefinition]] | Sequence[Pair[ConstraintDefinition]],
    ) -> Iterator[Difference]:
        for old, new in pairs:
            if old is None or new is None or self.is_changed(old, new):
                yield Difference(kind, old, new)

    def _column_differences(
        self, old: ColumnDefinition, new: ColumnDefinition
    ) -> Iterator[Difference]:
        is_other_sequence = old.sequence != new.sequence
        compared: tuple[tuple[ChangeKind, bool], ...] = (
            (
                "column_type",
                (self.renamed.type(old.type), old.collation) != (new.type, new.collation),
            ),
            (
                "column_generated",
                not self.renamed.is_same(old.generated, new.generated) or old.stored != new.stored,
            ),
            ("column_identity", old.identity != new.identity or is_other_sequence),
            (
                # A default that draws from a sequence changes with it.
                "column_default",
                not is_other_sequence and not self.renamed.is_same(old.default, new.default),
            ),
            ("column_nullability", old.not_null != new.not_null),
            # One that is no longer generated is sent from then on.
            (
                "column_published",
                old.published != new.published
                and (old.generated is None) == (new.generated is None),
            ),
        )
        yield from (Difference(kind, old, new) for kind, is_other in compared if is_other)

    @staticmethod
    def _identities(table: TableDefinition, renamed: RenamedNames) -> tuple[object, ...]:
        return (
            table.replica_identity,
            renamed.names(table.identity_key),
            sorted(map(renamed.names, table.unique_keys)),
        )


def _columns(table: TableDefinition | None) -> list[ColumnDefinition]:
    return [] if table is None else [column for column in table.columns if not column.ignored]


def _paired(
    before: Iterable[_L], after: Iterable[_L], name_of: Callable[[_L], str]
) -> list[Pair[_L]]:
    """By oid first: a name may have passed from one to another."""
    old, new = list(before), list(after)
    partners: dict[int, _L] = {}
    by_oid = {item.oid: item for item in old if item.oid}
    for place, item in enumerate(new):
        if item.oid in by_oid:
            partners[place] = by_oid.pop(item.oid)
    taken = {id(item) for item in partners.values()}
    by_name = {name_of(item): item for item in old if id(item) not in taken}
    for place, item in enumerate(new):
        if place not in partners and name_of(item) in by_name:
            partners[place] = by_name.pop(name_of(item))
    taken = {id(item) for item in partners.values()}
    pairs: list[Pair[_L]] = [(partners.get(place), item) for place, item in enumerate(new)]
    return pairs + [(item, None) for item in old if id(item) not in taken]


def _options(item: IndexDefinition | ConstraintDefinition) -> str:
    pattern = _INDEX_OPTIONS if isinstance(item, IndexDefinition) else _CONSTRAINT_OPTIONS
    found = pattern.search(item.definition)
    return "" if found is None else found[0]


def _words(step: Difference) -> Iterator[str]:
    match step.before or step.after, step.after:
        case ColumnDefinition() as old, ColumnDefinition() | None as new:
            yield _column_words(step.kind, None if step.before is None else old, new)
        case IndexDefinition() | ConstraintDefinition() as item, after:
            what = "index" if isinstance(item, IndexDefinition) else "constraint"
            if step.before is None:
                yield f"{what} {item.name} added: {item.definition}"
            elif not isinstance(after, IndexDefinition | ConstraintDefinition):
                yield f"{what} {item.name} dropped"
            else:
                if item.name != after.name:
                    yield f"{what} {item.name} renamed to {after.name}"
                if _options(item) != _options(after) or item.name == after.name:
                    yield f"{what} {after.name}: {item.definition} -> {after.definition}"
        case TypeDefinition() as kind, after:
            name = kind.name if kind.schema == "public" else kind.qualified_name
            if step.before is None:
                yield f"type {name} ({kind.kind}) added"
            elif not isinstance(after, TypeDefinition):
                yield f"type {name} no longer used"
            else:
                yield f"type {name}: {', '.join(type_changes(kind, after))}"
        case TableDefinition() as old, TableDefinition() | None as new:
            yield _table_words(step.kind, old, new)


def _column_words(
    kind: ChangeKind, old: ColumnDefinition | None, new: ColumnDefinition | None
) -> str:
    if old is None or new is None:
        if new is None:
            return "" if old is None else f"column {old.name} dropped"
        parts = ["not null"] if new.not_null else []
        parts += [f"default {new.default}"] if new.default is not None else []
        parts += [f"identity {_IDENTITIES[new.identity]}"] if new.identity else []
        parts += [f"generated as {new.generated}"] if new.generated is not None else []
        shown = f" ({', '.join(parts)})" if parts else ""
        return f"column {new.name} {shown_type(new.type, new.collation)} added{shown}"
    if kind == "rename_column":
        return f"column {old.name} renamed to {new.name}"
    if kind == "column_type":
        types = (shown_type(old.type, old.collation), shown_type(new.type, new.collation))
        what = " -> ".join(types)
    elif kind == "column_default":
        what = "default dropped" if new.default is None else f"default {new.default}"
    elif kind == "column_nullability":
        what = "not null" if new.not_null else "null allowed"
    elif kind == "column_identity" and old.identity != new.identity:
        what = f"identity {_IDENTITIES[old.identity]} -> {_IDENTITIES[new.identity]}"
    elif kind == "column_identity":
        what = f"sequence {old.sequence or 'none'} -> {new.sequence or 'none'}"
    elif kind == "column_generated":
        is_plain = new.generated is None
        what = "no longer generated" if is_plain else f"generated as {new.generated}"
    else:
        what = "published" if new.published else "no longer published"
    return f"column {new.name}: {what}"


def _table_words(kind: ChangeKind, old: TableDefinition, new: TableDefinition | None) -> str:
    if new is None or kind == "drop_table":
        return f"table {old.qualified_name} dropped"
    if kind == "create_table":
        return f"table {new.qualified_name} created"
    if kind == "rename_table":
        return f"table {old.qualified_name} renamed to {new.qualified_name}"
    if kind == "primary_key":
        if not new.primary_key:
            return "primary key dropped"
        shown = f"({', '.join(new.primary_key)})"
        if not old.primary_key:
            return f"primary key {shown} added"
        return f"primary key ({', '.join(old.primary_key)}) -> {shown}"
    if kind == "replica_identity":
        if old.replica_identity != new.replica_identity:
            names = _REPLICA_IDENTITIES
            return (
                f"replica identity {names[old.replica_identity]} -> {names[new.replica_identity]}"
            )
        if old.identity_key != new.identity_key:
            return f"replica identity index on ({', '.join(new.identity_key)})"
        keys = " ".join(f"({', '.join(key)})" for key in new.unique_keys)
        return f"unique keys: {keys or 'none'}"
    if kind == "partitions":
        added = len({*new.partitions} - {*old.partitions})
        gone = len({*old.partitions} - {*new.partitions})
        return f"partitions: {added} added, {gone} gone"
    return "rows rewritten"
