"""Which SQL texts of the source's catalogue may be run elsewhere.

A default, a check, a generated column's expression or an index comes from whoever owns the table,
and runs at the destination with the destination's rights. So each is read as the one kind of clause
that it should be, and what it calls has to be built in and harmless, unless the pipeline file
trusts more. What is left out is said, table by table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import psycopg

from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeDefinition
from penstock.source.postgres.source_errors import source_errors

Trusted = Literal["built_in", "all"] | Collection[str]
"""What an expression may call: what is built in, that and the functions of a list, or all."""

# What computes a value from its arguments alone is immutable. These are not, and of no consequence:
# they depend on the clock, on chance, on settings of the session or on a sequence. Of the others
# many read tables, files or settings, run SQL or end sessions, also among those that are stable.
_HARMLESS = """
clock_timestamp gen_random_uuid nextval random random_normal timeofday uuidv4 uuidv7
now statement_timestamp transaction_timestamp
age date date_add date_part date_subtract date_trunc extract make_timestamptz overlaps time
timestamp timestamptz timetz timezone to_char to_date to_number to_timestamp
array_to_string concat concat_ws convert convert_from convert_to format length money numeric
quote_literal quote_nullable
array_to_json json_build_array json_build_object jsonb_build_array jsonb_build_object
jsonb_path_exists_tz jsonb_path_match_tz jsonb_path_query_array_tz jsonb_path_query_first_tz
row_to_json to_json to_jsonb
json_to_tsvector jsonb_to_tsvector plainto_tsquery phraseto_tsquery to_tsquery to_tsvector
websearch_to_tsquery
enum_first enum_last enum_range pg_typeof
"""
# What may stand before a bracket and calls nothing: methods of indexes, and the second word of a
# type, as in character varying(10).
_BEFORE_NO_CALL = {("mark", "::"), ("name", "REFERENCES"), ("name", "USING")}
_TYPES_OF_TWO_WORDS = {("name", "character"), ("name", "bit")}

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<odd>[uU]&['"])
      | (?P<string>[eE]'(?:[^'\\]|''|\\.)*' | [bBxX]?'(?:[^']|'')*')
      | (?P<name>"(?:[^"]|"")+" | [^\W\d][\w$]*)
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<mark>[()\[\],.]|::?)
      | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)
    """,
    re.VERBOSE | re.DOTALL,
)

_KEYWORD = re.compile("[A-Z_]+")

_OPEN = {")": "(", "]": "["}

_FIRST_WORDS = {
    "expression": "",
    "check": "CHECK ",
    "unique": "UNIQUE ",
    "exclude": "EXCLUDE ",
    "foreign": "FOREIGN KEY ",
    "index": "USING ",
    "domain": "CONSTRAINT ",
}


class NotTrusted(Exception):
    """The reason why a text is left out."""


@dataclass(frozen=True)
class Trust:
    """``built_in`` are the names of the server's own functions that only compute a value."""

    setting: Trusted = "built_in"
    built_in: frozenset[str] = frozenset()

    @classmethod
    def read(cls, conn: psycopg.Connection[Any], setting: Trusted) -> Trust:
        with source_errors("reading which functions only compute"):
            found = conn.execute(
                "SELECT proname::text FROM pg_proc"
                " WHERE pronamespace = 'pg_catalog'::regnamespace"
                " GROUP BY proname HAVING bool_and(provolatile = 'i')"
            ).fetchall()
        return cls(setting, frozenset(name for (name,) in found) | frozenset(_HARMLESS.split()))

    def all_judged(self, tables: Mapping[int, TableDefinition]) -> dict[int, TableDefinition]:
        return {oid: self.judged(table) for oid, table in tables.items()}

    def judged(self, table: TableDefinition) -> TableDefinition:
        """The table without what is not trusted; ``left_out`` says what that is, and why."""
        left_out: list[str] = []

        def keeps(what: str, kind: str, text: str | None) -> bool:
            if text is None:
                return True
            try:
                self.check(kind, text)
            except NotTrusted as reason:
                left_out.append(f"{what} is left out: {reason}")
                return False
            return True

        judged = replace(
            table,
            columns=tuple(_column(column, keeps) for column in table.columns),
            types=tuple(_type(kind, keeps) for kind in table.types),
            indexes=tuple(
                index
                for index in table.indexes
                if keeps(f"index {index.name}", "index", index.definition)
            ),
            constraints=tuple(
                constraint
                for constraint in table.constraints
                if keeps(f"constraint {constraint.name}", constraint.kind, constraint.definition)
            ),
            left_out=tuple(left_out),
        )
        return judged if left_out else table

    def check(self, kind: str, text: str) -> None:
        """Raise NotTrusted unless the text is one clause of this kind, and all that it calls is
        trusted.
        """
        first = _FIRST_WORDS[kind]
        if not text.startswith(first):
            raise NotTrusted(f"{text!r} is no clause that begins with {first}")
        tokens = list(_tokens(text))
        _require_one(text, tokens)
        if self.setting == "all":
            return
        for function in _calls(tokens):
            schema, _, name = function.rpartition(".")
            is_system = schema in ("", "pg_catalog")
            if is_system and name in self.built_in:
                continue
            full_name = f"pg_catalog.{name}" if is_system else function
            if self.setting != "built_in" and full_name in self.setting:
                continue
            if is_system:
                raise NotTrusted(f"{name}() does more than compute a value")
            raise NotTrusted(f"{function} is not built in; schema_changes.trust can allow it")


Keeps = Callable[[str, str, str | None], bool]


def _column(column: ColumnDefinition, keeps: Keeps) -> ColumnDefinition:
    if not keeps(f"the default of column {column.name}", "expression", column.default):
        return replace(column, default=None, sequence=None)
    if not keeps(f"the expression of column {column.name}", "expression", column.generated):
        return replace(column, generated=None)
    return column


def _type(kind: TypeDefinition, keeps: Keeps) -> TypeDefinition:
    is_kept = keeps(f"the default of domain {kind.name}", "expression", kind.default)
    return replace(
        kind,
        default=kind.default if is_kept else None,
        constraints=tuple(
            check
            for check in kind.constraints
            if keeps(f"a check of domain {kind.name}", "domain", check)
        ),
    )


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each token."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        operator = "" if match is None else match["operator"] or ""
        # Comments, and strings and names in a form that no server writes, are not for us to read.
        if match is None or match["odd"] or "--" in operator or "/*" in operator:
            raise NotTrusted(f"{text!r} is not what a server writes")
        at = match.end()
        kind = match.lastgroup
        assert kind is not None  # noqa: S101 (each alternative has a name)
        if kind != "space":
            yield kind, match[0]


def _require_one(text: str, tokens: Sequence[tuple[str, str]]) -> None:
    """Brackets are balanced, and no comma outside of them begins something else."""
    opened: list[str] = []
    for kind, mark in tokens:
        if kind != "mark":
            continue
        if mark in "([":
            opened.append(mark)
        elif mark in _OPEN:
            if not opened or opened.pop() != _OPEN[mark]:
                raise NotTrusted(f"the brackets of {text!r} do not match")
        elif mark == "," and not opened:
            raise NotTrusted(f"{text!r} is more than one thing")
    if opened or not tokens:
        raise NotTrusted(f"the brackets of {text!r} do not match")


def _calls(tokens: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What is called, with its schema where it is named. Types with a modifier, the tables
    of foreign keys and methods of indexes look alike, but stand behind a cast, REFERENCES or USING;
    keywords are in capitals.
    """
    at = 0
    while at < len(tokens):
        start, parts = at, []
        while at < len(tokens) and tokens[at][0] == "name":
            parts.append(tokens[at][1])
            if at + 1 < len(tokens) and tokens[at + 1] == ("mark", "."):
                at += 2
                continue
            at += 1
            break
        if not parts:
            # Also an operator behind its schema, as in OPERATOR(public.=).
            at += 1
            continue
        before = tokens[start - 1] if start else None
        follows = tokens[at] if at < len(tokens) else None
        if follows is None or before in _BEFORE_NO_CALL:
            continue
        if parts == ["varying"] and before in _TYPES_OF_TWO_WORDS:
            continue
        name = ".".join(_plain(part) for part in parts)
        if follows == ("mark", "(") and not (len(parts) == 1 and _KEYWORD.fullmatch(name)):
            yield name
        elif follows[0] == "operator" and tokens[at - 1] == ("mark", ".") and name != "pg_catalog":
            yield f"{name}.{follows[1]}"


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
