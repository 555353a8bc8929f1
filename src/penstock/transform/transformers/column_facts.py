"""What transformers want to know of a column: the family of its type, and its limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from penstock.model.pg_types import numeric_modifier
from penstock.model.table_definition import ColumnDefinition, TypeDefinition, TypeName
from penstock.model.table_schema import ColumnSchema, PgType

_BY_OID = {
    16: "boolean", 17: "bytea", 19: "text", 20: "integer", 21: "integer", 23: "integer",
    25: "text", 114: "json", 142: "xml", 650: "ip", 700: "float", 701: "float", 869: "ip",
    1042: "text", 1043: "text", 1082: "date", 1083: "time", 1114: "timestamp",
    1184: "timestamp", 1700: "numeric", 2950: "uuid", 3802: "json", 600: "point",
}  # fmt: skip
_BY_NAME = {
    "boolean": "boolean", "bytea": "bytea", "name": "text", "bigint": "integer",
    "smallint": "integer", "integer": "integer", "text": "text", "json": "json", "cidr": "ip",
    "real": "float", "double precision": "float", "inet": "ip", "character": "text",
    "character varying": "text", "date": "date", "numeric": "numeric", "uuid": "uuid",
    "jsonb": "json", "point": "point",
}  # fmt: skip
# Of extensions: their types have an oid of each database's own.
_OF_EXTENSIONS = {"citext": "text", "hstore": "hstore"}
_BITS = {20: 63, 23: 31, 21: 15, "bigint": 63, "integer": 31, "smallint": 15}


@dataclass(frozen=True)
class ColumnFacts:
    """``length`` is the most characters that a text may have, ``bits`` an integer's without its
    sign, ``whole`` and ``scale`` a numeric's digits; None for no limit. ``padded``: of type
    char(n). ``zoned``: a timestamp with time zone. ``element`` is what an array holds.
    """

    name: str
    family: str
    type_name: str
    length: int | None = None
    bits: int = 0
    whole: int | None = None
    scale: int | None = None
    padded: bool = False
    zoned: bool = False
    labels: tuple[str, ...] = ()
    element: ColumnFacts | None = None

    @classmethod
    def of_column(cls, column: ColumnSchema) -> ColumnFacts:
        """As the stream announces it."""
        return _of_type(column.name, column.type, column.typmod)

    @classmethod
    def of_definition(
        cls, column: ColumnDefinition, types: tuple[TypeDefinition, ...]
    ) -> ColumnFacts:
        """As the catalogue tells it."""
        return _of_name(column.name, column.type, types)


def text_facts(name: str, family: str = "text") -> ColumnFacts:
    """Of what has no limits: a leaf of a document, say."""
    return ColumnFacts(name, family, family, bits=63)


def _of_type(name: str, kind: PgType, typmod: int) -> ColumnFacts:
    while kind.kind == "domain" and kind.inner is not None:
        kind, typmod = kind.inner, kind.typmod
    if kind.kind == "array" and kind.inner is not None:
        element = _of_type(name, kind.inner, typmod)
        return ColumnFacts(name, "array", f"{element.type_name}[]", element=element)
    if kind.kind == "enum":
        return ColumnFacts(name, "enum", kind.name)
    family = _BY_OID.get(kind.oid) if kind.kind == "base" else None
    if family is None and kind.kind == "base":
        family = _OF_EXTENSIONS.get(kind.name)
    length = typmod - 4 if kind.oid in (1042, 1043) and typmod >= 4 else None
    modifier = numeric_modifier(typmod) if family == "numeric" else None
    return ColumnFacts(
        name,
        family or "other",
        kind.name,
        length,
        _BITS.get(kind.oid, 0),
        None if modifier is None else modifier[0] - modifier[1],
        None if modifier is None else modifier[1],
        padded=kind.oid == 1042,
        zoned=kind.oid == 1184,
    )


def _of_name(name: str, kind: TypeName, types: tuple[TypeDefinition, ...]) -> ColumnFacts:
    if kind.is_array:
        element = _of_name(name, replace(kind, is_array=False), types)
        return ColumnFacts(name, "array", f"{element.type_name}[]", element=element)
    if kind.is_user_defined:
        own = next((t for t in types if (t.schema, t.name) == (kind.schema, kind.name)), None)
        if own is not None and own.kind == "domain" and own.base is not None:
            return _of_name(name, own.base, types)
        if own is not None and own.kind == "enum":
            return ColumnFacts(name, "enum", kind.name, labels=own.labels)
        return ColumnFacts(name, _OF_EXTENSIONS.get(kind.name, "other"), kind.name)
    spelled = kind.name
    if spelled.startswith(("timestamp", "time")):
        family = "timestamp" if spelled.startswith("timestamp") else "time"
        zoned = "with time zone" in f"{spelled} {kind.modifier}"
        return ColumnFacts(
            name,
            "other" if family == "time" and zoned else family,
            spelled,
            zoned=zoned,
        )
    numbers = [int(number) for number in re.findall(r"-?\d+", kind.modifier)]
    family = _BY_NAME.get(spelled, "other")
    facts = ColumnFacts(name, family, spelled, bits=_BITS.get(spelled, 0))
    if family == "text" and numbers:
        return replace(facts, length=numbers[0], padded=spelled == "character")
    if family == "numeric" and numbers:
        scale = numbers[1] if len(numbers) > 1 else 0
        return replace(facts, whole=numbers[0] - scale, scale=scale)
    return facts
