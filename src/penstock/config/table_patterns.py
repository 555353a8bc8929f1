"""Which tables a pipeline takes: include and exclude patterns over ``schema.table``. No I/O."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Rule = Literal["add", "remove"]
"""What a person said of one table, by its name: follow it, or do not, whatever the patterns say."""

Rules = Mapping[tuple[str, str], Rule]
"""By schema and name."""


class PatternError(ValueError):
    """Text that is no table pattern; ``why`` says so without repeating it."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text!r} is not a table pattern: {why}")
        self.why = why


@dataclass(frozen=True)
class TablePattern:
    """One pattern. ``text`` is what the user wrote; ``schema`` and ``table`` match whole names."""

    text: str
    schema: re.Pattern[str]
    table: re.Pattern[str]
    has_wildcard: bool

    def matches(self, schema: str, table: str) -> bool:
        return bool(self.schema.fullmatch(schema) and self.table.fullmatch(table))


def parse_pattern(text: str) -> TablePattern:
    """The pattern behind ``orders``, ``shop.*`` or ``"My Schema"."a.b"``.

    A name without a schema is one of ``public``. ``*`` stands for any characters and ``?`` for one,
    inside one part. A part in double quotes is taken literally. Names are compared as the catalogue
    holds them, upper and lower case included. Raises PatternError for anything else.
    """
    parts = _split_parts(text)
    if len(parts) > 2:
        raise PatternError(text, "it has more than two parts; write schema.table")
    if len(parts) == 1:
        parts.insert(0, ("public", True))
    (schema, schema_quoted), (table, table_quoted) = parts
    return TablePattern(
        text=text,
        schema=_regex(schema, schema_quoted),
        table=_regex(table, table_quoted),
        has_wildcard=any(not quoted and bool(set("*?") & set(part)) for part, quoted in parts),
    )


def split_name(text: str) -> tuple[str, str]:
    """Schema and table that ``orders``, ``shop.orders`` or ``"My Schema"."a.b"`` name."""
    names = [name for name, _quoted in _split_parts(text)]
    if len(names) > 2:
        raise ValueError(f"{text!r} is not a table name: write schema.table")
    return (names[0], names[1]) if len(names) == 2 else ("public", names[0])


def _split_parts(text: str) -> list[tuple[str, bool]]:
    """The dotted parts of a pattern, each with whether it was quoted."""
    parts: list[tuple[str, bool]] = []
    rest = text
    while True:
        if rest.startswith('"'):
            match = re.match(r'"((?:[^"]|"")+)"(?=\.|$)', rest)
            if match is None:
                raise PatternError(text, "a double quote has no partner, or stands inside a part")
            parts.append((match[1].replace('""', '"'), True))
        else:
            match = re.match(r'[^."\s]+(?=\.|$)', rest)
            if match is None:
                raise PatternError(
                    text,
                    "a part is empty, or holds a space or a quote; "
                    'put such names in double quotes: "My Schema"."My Table"',
                )
            parts.append((match[0], False))
        if match.end() == len(rest):
            return parts
        rest = rest[match.end() + 1 :]


def _regex(part: str, quoted: bool) -> re.Pattern[str]:
    if quoted:
        return re.compile(re.escape(part))
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(char) or re.escape(char) for char in part), re.DOTALL)


class TablePatterns:
    """The tables that some include pattern matches and no exclude pattern does.

    Of those that an insert_only pattern matches too, only inserts and truncates are followed.
    ``rules`` are exceptions by name, which win over include and exclude.
    """

    def __init__(
        self,
        include: Iterable[str],
        exclude: Iterable[str] = (),
        insert_only: Iterable[str] = (),
        rules: Rules | None = None,
    ) -> None:
        self.include = tuple(parse_pattern(text) for text in include)
        self.exclude = tuple(parse_pattern(text) for text in exclude)
        self.insert_only = tuple(parse_pattern(text) for text in insert_only)
        self.rules: Rules = rules or {}

    def with_rules(self, rules: Rules) -> TablePatterns:
        """The same patterns with these exceptions."""
        same = copy.copy(self)
        same.rules = rules
        return same

    def matches(self, schema: str, table: str) -> bool:
        if rule := self.rules.get((schema, table)):
            return rule == "add"
        return any(pattern.matches(schema, table) for pattern in self.include) and not (
            self.excluded(schema, table)
        )

    def excluded(self, schema: str, table: str) -> bool:
        if rule := self.rules.get((schema, table)):
            return rule == "remove"
        return any(pattern.matches(schema, table) for pattern in self.exclude)

    def names(self, schema: str, table: str) -> bool:
        """True where the user asked for exactly this table: by a rule, or by a pattern without
        wildcards.
        """
        if rule := self.rules.get((schema, table)):
            return rule == "add"
        return self.matches(schema, table) and any(
            not pattern.has_wildcard and pattern.matches(schema, table) for pattern in self.include
        )
