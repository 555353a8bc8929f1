"""Types as messages name them. Nothing that a message says of a type is run: only the names of
built-in types count, and every other type is text. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from penstock.model.pg_types import builtin_type
from penstock.model.table_definition import TypeName
from penstock.model.table_schema import PgType

_SPELLED = {
    "bigint": 20,
    "bit": 1560,
    "bit varying": 1562,
    "boolean": 16,
    "character": 1042,
    '"char"': 18,
    "character varying": 1043,
    "double precision": 701,
    "integer": 23,
    "interval": 1186,
    "numeric": 1700,
    "real": 700,
    "smallint": 21,
    "time with time zone": 1266,
    "time without time zone": 1083,
    "timestamp with time zone": 1184,
    "timestamp without time zone": 1114,
}
"""Types that SQL calls by another name than the catalogue."""

_TEXT = 25
_MODIFIED = re.compile(
    r"(?P<name>[a-z\" ]+?)(?:\((?P<digits>-?\d+(?:,-?\d+)?)\)(?P<rest>[a-z ]*))?"
)


@dataclass(frozen=True)
class ColumnType:
    """A type for the log (``pg_type``, ``typmod``) and for targets (``name``)."""

    pg_type: PgType
    typmod: int
    name: TypeName

    @property
    def is_json(self) -> bool:
        """Whether its values are embedded in messages."""
        return self.pg_type.oid in (114, 3802)


def text_type() -> ColumnType:
    return _made(_TEXT, "text", "", is_array=False, typmod=-1)


@cache
def column_type(text: str) -> ColumnType:
    """The type that a schema event names; text where it is not one of the built-in ones."""
    is_array = text.endswith("[]")
    match = _MODIFIED.fullmatch(text.removesuffix("[]"))
    if match is None:
        named = _by_catalogue_name().get(text.removesuffix("[]"))
        if named is None:
            return text_type()
        return _made(named, text.removesuffix("[]"), "", is_array=is_array, typmod=-1)
    name, digits, rest = match["name"], match["digits"], match["rest"] or ""
    bare = f"{name}{rest}"
    oid = _SPELLED.get(bare) or _by_catalogue_name().get(bare)
    if oid is None:
        return text_type()
    modifier = "" if digits is None else f"({digits}){rest}"
    shown = name if digits is not None else bare
    return _made(oid, shown, modifier, is_array=is_array, typmod=_typmod(oid, digits))


def type_of_oid(oid: int, typmod: int = -1) -> ColumnType | None:
    """A built-in scalar type by its oid."""
    found = builtin_type(oid)
    if found is None or found.kind == "array":
        return None
    shown = next((name for name, known in _SPELLED.items() if known == oid), found.name)
    return _made(oid, shown, "", is_array=False, typmod=typmod)


def _made(oid: int, shown: str, modifier: str, *, is_array: bool, typmod: int) -> ColumnType:
    scalar = builtin_type(oid)
    assert scalar is not None  # noqa: S101 (only oids of built-in types come here)
    pg_type = scalar
    if is_array:
        found = _arrays().get(oid)
        if found is None:
            return text_type()
        pg_type = found
    return ColumnType(pg_type, typmod, TypeName("pg_catalog", shown, modifier, is_array))


def _typmod(oid: int, digits: str | None) -> int:
    if digits is None:
        return -1
    first, _, second = digits.partition(",")
    if oid == 1700:
        return ((int(first) << 16) | (int(second or 0) & 0x7FF)) + 4
    if oid in (1042, 1043):
        return int(first) + 4
    if oid == 1186:
        return (0x7FFF << 16) | int(first)
    return int(first)


@cache
def _by_catalogue_name() -> dict[str, int]:
    return {t.name: t.oid for t in _builtin() if t.kind != "array"}


@cache
def _arrays() -> dict[int, PgType]:
    return {t.inner.oid: t for t in _builtin() if t.kind == "array" and t.inner is not None}


def _builtin() -> list[PgType]:
    return [found for oid in range(1, 10_000) if (found := builtin_type(oid)) is not None]
