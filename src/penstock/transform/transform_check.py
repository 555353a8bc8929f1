"""Rules against the catalogue: what would not work, before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.config.row_condition_tree import column_names
from penstock.model.errors import ConfigError, TableRefused
from penstock.model.pg_types import builtin_type
from penstock.model.table_definition import (
    ConstraintDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)
from penstock.model.table_schema import ColumnSchema, TableSchema
from penstock.transform.refusals import unsuited_key
from penstock.transform.rules import BoundRule, facts_of, in_order
from penstock.transform.shown_definition import mentions, shown_definition
from penstock.transform.transform import Transform
from penstock.transform.transformers.contract import UnfitError, Uniqueness

Status = Literal["passed", "warning", "failed"]


_NEVER_LARGE = frozenset(
    ("boolean", "date", "enum", "float", "integer", "ip", "numeric", "point", "time", "timestamp")
) | frozenset(("uuid",))
_SHORT = 100
"""Characters of which Postgres hardly ever keeps a value apart from its row."""


@dataclass(frozen=True)
class RuleFinding:
    """What was found of a table and, where it is about one, of a column."""

    status: Status
    table: str
    column: str
    text: str
    remedy: str = ""

    @property
    def where(self) -> str:
        return f"{self.table}.{self.column}" if self.column else self.table


def check_rules(
    transform: Transform, tables: Sequence[TableDefinition], *, merges: bool
) -> list[RuleFinding]:
    """All findings, table by table. ``merges``: the destination holds rows, and unique indexes of
    them. ``tables`` are as the source has them.
    """
    checks = [_TableCheck(transform, table, merges) for table in tables]
    found = [finding for check in checks for finding in check.findings()]
    found += _foreign_keys(checks)
    found += _unmatched(transform, tables)
    return found


class _TableCheck:
    def __init__(self, transform: Transform, table: TableDefinition, merges: bool) -> None:
        self.table = table
        self.rules = transform.rules
        self._merges = merges
        self._facts = facts_of(table)
        bound = dict(self.rules.bound(table.schema, table.name, self._facts))
        self.bound = {n: rule for n, rule in bound.items() if isinstance(rule, BoundRule)}
        self._unfit = {n: error for n, error in bound.items() if isinstance(error, UnfitError)}

    def findings(self) -> Iterator[RuleFinding]:
        if not self.rules.covers(self.table.schema, self.table.name):
            return
        problems = [*self._uncovered(), *self._columns(), *self.unique(), *self._checks()]
        yield from problems
        if not any(problem.status == "failed" for problem in problems):
            changed = ", ".join(f"{n} ({b.rule.use})" for n, b in self.bound.items()) or "none"
            yield self._finding("passed", "", f"columns that change: {changed}")

    def _finding(self, status: Status, column: str, text: str, remedy: str = "") -> RuleFinding:
        return RuleFinding(status, self.table.qualified_name, column, text, remedy)

    def _uncovered(self) -> Iterator[RuleFinding]:
        schema, name = self.table.schema, self.table.name
        for column in self.rules.uncovered(schema, name, list(self._facts)):
            yield self._finding(
                "failed",
                column,
                "has no rule, and transform.mode is strict",
                "Give it a rule, or list it under keep.",
            )
        for column in self.rules.absent(schema, name, list(self._facts)):
            yield self._finding(
                "failed", column, "has a rule, but is no column of the table", "Correct the name."
            )

    def _columns(self) -> Iterator[RuleFinding]:
        key = {*self.table.merge_key, *self.table.primary_key}
        for column, error in self._unfit.items():
            yield self._finding("failed", column, error.why, "Take another transformer or option.")
        for column, bound in self.bound.items():
            if column in key and (why := bound.why_no_key) is not None:
                yield self._finding(
                    "failed",
                    column,
                    f"{bound.rule.use}: the column belongs to the key, and {why}",
                    "Take integer_key, uuid, token or encrypt, or keep it.",
                )
            elif not self.table.merge_key and bound.transformer.is_random and self._merges:
                yield self._finding(
                    "failed",
                    column,
                    "draws at random, and rows of the table are found by their values alone",
                    "Give the table a primary key, or take `random` out.",
                )
            for other in bound.inputs:
                if other not in self._facts:
                    yield self._finding(
                        "failed", column, f"needs a column {other}, which is not there", ""
                    )
            yield from self._condition(column, bound)
        try:
            in_order(list(self.bound.values()), self.table.qualified_name)
        except UnfitError as error:
            yield self._finding("failed", "", error.why, "Let one of them stand by itself.")
        yield from self._generated()
        yield from self._not_null()

    def _condition(self, column: str, bound: BoundRule) -> Iterator[RuleFinding]:
        if bound.condition is None:
            return
        names = set(column_names(bound.condition.tree))
        if unknown := sorted(names - self._facts.keys()):
            yield self._finding(
                "failed",
                column,
                f"its condition names {', '.join(unknown)}, which is no column of the table that "
                f"comes; these do: {', '.join(self._facts)}",
                "Correct it.",
            )
        elif not names:
            yield self._finding(
                "failed", column, "its condition names no column of the table", "Correct it."
            )
        elif (schema := self._announced(names)) is not None:
            try:
                bound.condition.check(schema)
            except ConfigError as error:
                yield self._finding("failed", column, error.message, error.remedy or "Correct it.")
        if not names - self._facts.keys():
            yield from self._large(column, names)

    def _large(self, column: str, names: set[str]) -> Iterator[RuleFinding]:
        """A value that Postgres may not send, with a condition on what an update may change."""
        facts = self._facts[column]
        if self.table.replica_identity == "f" or facts.family in _NEVER_LARGE:
            return
        if facts.length is not None and facts.length <= _SHORT:
            return
        if names and not names.issubset(self.table.merge_key):
            yield self._finding(
                "warning",
                column,
                "has a condition, and its values may be large: an update that does not send such a "
                "value puts the table aside",
                f"ALTER TABLE {self.table.qualified_name} REPLICA IDENTITY FULL, or take the "
                "condition away.",
            )

    def _announced(self, names: set[str]) -> TableSchema | None:
        """These columns as the stream will announce them; None where one has a type that Postgres
        does not bring along.
        """
        columns = []
        for column in self.table.columns:
            if column.name in names:
                if (kind := builtin_type(column.type_oid)) is None:
                    return None
                typmod = -1 if column.typmod is None else column.typmod
                columns.append(ColumnSchema(column.name, kind, typmod))
        table = self.table
        return TableSchema(
            table.oid, table.schema, table.name, table.replica_identity, tuple(columns)
        )

    def _generated(self) -> Iterator[RuleFinding]:
        for column in self.table.columns:
            if column.generated is None or not column.is_delivered or column.name in self.bound:
                continue
            sources = [name for name in self.bound if mentions(column.generated, name)]
            if sources:
                yield self._finding(
                    "failed",
                    column.name,
                    f"is generated from {', '.join(sources)} and published, so it would show what "
                    "their rules hide",
                    "Give it a rule, too, or leave it out (filter.columns).",
                )

    def _not_null(self) -> Iterator[RuleFinding]:
        for column in self.table.columns:
            bound = self.bound.get(column.name)
            if bound is None:
                continue
            domains = () if column.type.is_array else self._domains(column.type)
            if not (column.not_null or any(domain.not_null for domain in domains)):
                continue
            if bound.rule.use == "null" or bound.rule.errors == "null":
                yield self._finding(
                    "failed", column.name, "becomes null, but is NOT NULL", "Take a literal."
                )

    def unique(self) -> Iterator[RuleFinding]:
        unique = [("index", i.name, i.definition) for i in self.table.indexes if i.is_unique]
        unique += [
            ("constraint", c.name, c.definition)
            for c in self.table.constraints
            if c.kind in ("unique", "exclude")
        ]
        nullable = {column.name for column in self.table.columns if not column.not_null}
        for kind, name, definition in unique:
            uncast = _CAST.sub("", definition)
            named = [n for n in self.bound if mentions(uncast, n)]
            same_nulls = "NULLS NOT DISTINCT" in definition
            found = {
                n: kept_apart(self.bound[n], n in nullable, same_nulls=same_nulls) for n in named
            }
            lost = [n for n in named if found[n][0] == "lost"]
            doubtful = [n for n in named if found[n][0] == "not promised"]
            if lost:
                yield self._finding(
                    "failed" if self._merges else "warning",
                    lost[0],
                    f"{found[lost[0]][1]}, but unique {kind} {name} is over it",
                    "Take hash, email, uuid, token, integer_key or encrypt for all rows, or leave "
                    "the column out.",
                )
            elif doubtful:
                yield self._finding(
                    "warning",
                    doubtful[0],
                    f"{self.bound[doubtful[0]].rule.use} keeps values apart almost always, not "
                    f"certainly; unique {kind} {name} is over it",
                )

    def _domains(self, kind: TypeName | None) -> Iterator[TypeDefinition]:
        """The domains that a type is, from the outermost on; of an array those of its elements."""
        types = {(each.schema, each.name): each for each in self.table.types}
        while kind is not None and (own := types.get((kind.schema, kind.name))) is not None:
            if own.kind == "domain":
                yield own
            kind = own.base if own.kind == "domain" else None

    def _checks(self) -> Iterator[RuleFinding]:
        for constraint in self.table.constraints:
            if constraint.kind != "check":
                continue
            named = [n for n in self.bound if mentions(constraint.definition, n)]
            if named:
                yield self._finding(
                    "warning",
                    named[0],
                    f"check constraint {constraint.name} is not made at the destination: what the "
                    "rule gives need not meet it",
                )
        for column in self.table.columns:
            for domain in self._domains(column.type) if column.name in self.bound else ():
                if domain.constraints:
                    yield self._finding(
                        "warning",
                        column.name,
                        f"is of domain {domain.qualified_name}, whose check the destination keeps: "
                        "a row is refused for which what the rule gives does not meet it",
                    )
        shown = shown_definition(self.table, set(self.bound), lambda _column: None)
        for text in shown.left_out:
            if text not in self.table.left_out and not text.startswith("check "):
                yield self._finding("warning", "", text)


def kept_apart(bound: BoundRule, is_nullable: bool, *, same_nulls: bool) -> tuple[Uniqueness, str]:
    """Whether different values of a column stay different, and if they do not, why.
    ``same_nulls``: one null is as good as another.
    """
    use, rule = bound.rule.use, bound.rule
    found = bound.transformer.uniqueness
    if found == "lost":
        return found, f"{use} makes different values the same"
    if rule.nulls == "transform" and is_nullable and not bound.transformer.is_random:
        return "lost", f"nulls: transform makes one value of all nulls ({use})"
    if same_nulls and rule.errors == "null":
        return "lost", "errors: null can make several nulls"
    if bound.condition is not None and found == "kept":
        # Of 128 bits it is as unlikely as with a hash.
        found = "not promised" if use in ("uuid", "encrypt") else "lost"
        return found, f"what {use} makes of a value can be one that stays, where `when` is false"
    return found, ""


# Columns may be called as types are.
_CAST = re.compile(r'::(?:[\w$]+|"(?:[^"]|"")+")')
# Names in quotes may have parentheses of their own.
_PLAIN = r'(?:"(?:[^"]|"")+"|[^"()])+'
_FOREIGN = re.compile(
    rf"FOREIGN KEY \((?P<own>{_PLAIN})\) REFERENCES {_PLAIN}\((?P<other>{_PLAIN})\)"
)
_NAME = re.compile(r'"((?:[^"]|"")+)"|([^\s,"]+)')


def _names(text: str) -> list[str]:
    return [
        (quoted.replace('""', '"') if quoted else plain) for quoted, plain in _NAME.findall(text)
    ]


def _foreign_keys(checks: Sequence[_TableCheck]) -> Iterator[RuleFinding]:
    by_name = {(check.table.schema, check.table.name): check for check in checks}
    for check in checks:
        for constraint in check.table.constraints:
            if constraint.kind != "foreign" or constraint.references not in by_name:
                continue
            yield from _foreign_key(check, by_name[constraint.references], constraint)


def _foreign_key(
    check: _TableCheck, partner: _TableCheck, constraint: ConstraintDefinition
) -> Iterator[RuleFinding]:
    found = _FOREIGN.search(constraint.definition)
    if found is None:
        return
    for own, other in zip(_names(found["own"]), _names(found["other"]), strict=False):
        mine, its = check.bound.get(own), partner.bound.get(other)
        is_nullable = any(c.name == own and not c.not_null for c in check.table.columns)
        if (mine and mine.signature) == (its and its.signature):
            if mine and its and (why := _parted(mine, is_nullable)) is not None:
                yield RuleFinding(
                    "failed",
                    check.table.qualified_name,
                    own,
                    f"refers to {partner.table.qualified_name}.{other} (constraint "
                    f"{constraint.name}), but {why}: they would not match any more",
                    "Take a rule for both that depends on nothing but the value.",
                )
            continue
        where = f"{partner.table.qualified_name}.{other}"
        yield RuleFinding(
            "failed",
            check.table.qualified_name,
            own,
            f"refers to {where} (constraint {constraint.name}), but has "
            + (
                _other_rule(mine, its)
                if mine and its
                else "a rule that the other has not"
                if mine
                else "none of its own, while the other has one"
            )
            + ": they would not match any more",
            f"Give both the same transformer, options and domain ({own} and {where}).",
        )


def _other_rule(mine: BoundRule, its: BoundRule) -> str:
    if mine.rule == its.rule and mine.transformer.limit != its.transformer.limit:
        return "another length, which the rule's output hangs on"
    return "another rule"


def _parted(bound: BoundRule, is_nullable: bool) -> str | None:
    """Why the same rule gives a value and what refers to it another output; None: it does not."""
    if bound.transformer.facts.type_name == "citext" and not bound.transformer.folds_case:
        return f"{bound.rule.use} tells upper from lower case, which the column's type does not"
    if bound.transformer.is_random:
        return "the rule draws at random, another value each time"
    if bound.condition is not None:
        return "the rule's condition is asked of two rows, which may differ"
    if bound.inputs:
        return f"the rule depends on {', '.join(bound.inputs)} of two rows, which may differ"
    if bound.rule.nulls == "transform" and is_nullable:
        return "nulls: transform lets a null refer to a row that is not there"
    return None


def refused_later(
    transform: Transform,
    before: TableDefinition | None,
    after: TableDefinition,
    known: Iterable[TableDefinition],
    *,
    merges: bool,
    had: Collection[ConstraintDefinition] = (),
) -> TableRefused | None:
    """Why a table that came or was changed while the pipeline runs cannot be followed under its
    rules; None where it can. ``known`` are the tables that are followed, as they are; the foreign
    keys that it ``had`` are not looked at again.
    """
    if (refused := transform.refused(before, after)) is not None:
        return refused
    found = _keys_of(transform, after, known, merges, had)
    failed = next((finding for finding in found if finding.status == "failed"), None)
    if failed is None:
        return None
    return unsuited_key(failed.table, failed.column, failed.text, failed.remedy, after.oid)


def _keys_of(
    transform: Transform,
    table: TableDefinition,
    known: Iterable[TableDefinition],
    merges: bool,
    had: Collection[ConstraintDefinition],
) -> Iterator[RuleFinding]:
    """Findings of a table's unique indexes and foreign keys."""
    if not (seen := transform.seen([table])):
        return
    check = _TableCheck(transform, seen[0], merges)
    yield from check.unique()
    keys = [c for c in check.table.constraints if c.kind == "foreign" and c not in had]
    names = {key.references for key in keys}
    partners = [t for t in known if (t.schema, t.name) in names and t.oid != table.oid]
    checks = [check, *(_TableCheck(transform, t, merges) for t in transform.seen(partners))]
    by_name = {(each.table.schema, each.table.name): each for each in checks}
    for key in keys:
        if key.references in by_name:
            yield from _foreign_key(check, by_name[key.references], key)


def _unmatched(transform: Transform, tables: Sequence[TableDefinition]) -> Iterator[RuleFinding]:
    for place, rule in enumerate(transform.rules.config.rules):
        for text, pattern in zip(rule.table, rule.patterns.include, strict=True):
            if any(pattern.matches(table.schema, table.name) for table in tables):
                continue
            yield RuleFinding(
                "warning" if pattern.has_wildcard else "failed",
                text,
                "",
                f"transform.rules[{place}] matches no table that the pipeline follows",
                "Correct the name, or remove it.",
            )


def require_rules(transform: Transform, tables: Sequence[TableDefinition], *, merges: bool) -> None:
    """Raise ConfigError with everything that fails."""
    failed = [f for f in check_rules(transform, tables, merges=merges) if f.status == "failed"]
    if failed:
        raise ConfigError(
            "\n".join(
                ["transform: the rules do not suit the tables; nothing was sent."]
                + [f"  {finding.where}: {finding.text}" for finding in failed]
            ),
            remedy="\n".join(dict.fromkeys(f.remedy for f in failed if f.remedy)),
        )
