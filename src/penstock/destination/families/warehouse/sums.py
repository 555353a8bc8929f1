"""What a table of a warehouse holds, as `penstock verify` compares it. Pure."""

# ruff: noqa: S608 (names are quoted by the dialect)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.checked_texts import scale_of
from penstock.destination.families.warehouse.dialect import Dialect
from penstock.destination.protocols import SummedAs, summed_as

_PRESENCE = "CASE WHEN {0} IS NOT NULL THEN '' END"
_FLAG = "CASE WHEN {0} THEN '1' WHEN NOT {0} THEN '0' END"


@dataclass(frozen=True)
class SumWords:
    """How a warehouse writes what sums are made of. ``texts`` are expressions for the texts of
    columns, by how they are held; ``numeric`` is that of decimals, which may name their scale, and
    ``other`` that of all that is not named. ``digest`` is the md5 of a text in hexadecimal digits,
    and ``number`` a number of so many of them, of a type that a sum of them fits.
    """

    texts: Mapping[str, str]
    digest: str
    number: str
    numeric: str = "CAST({0} AS VARCHAR)"
    other: str = "{0}"
    concatenates_all: bool = True
    """CONCAT takes any number of texts: as operators they would be nested deeply."""
    summed: Mapping[str, SummedAs] = field(default_factory=dict)
    """Where it differs from what others do, by how columns are held."""


def warehouse_summed_as(dialect: Dialect, words: SumWords, plain: str) -> SummedAs:
    """Documents are written anew by every engine."""
    held = dialect.types.held_as(plain)
    if held == "json" or held.startswith("float"):
        return "presence"
    return words.summed.get(held, summed_as(plain))


def sum_query(dialect: Dialect, words: SumWords, target: Target) -> str:
    """The query that has the number of rows and their sum."""
    digests = [
        f"COALESCE({words.digest.format(_text(dialect, words, plain, dialect.quoted(name)))}, '-')"
        for name, plain in zip(target.columns, target.types, strict=True)
    ]
    row = words.digest.format(_joined(words, digests))
    number = words.number.format(row)
    return f"SELECT COUNT(*), COALESCE(SUM({number}), 0) FROM {dialect.table(target)}"


def _joined(words: SumWords, digests: list[str]) -> str:
    if words.concatenates_all and len(digests) > 1:
        return f"CONCAT({', '.join(digests)})"
    return " || ".join(digests) or "''"


def _text(dialect: Dialect, words: SumWords, plain: str, column: str) -> str:
    mode, held = warehouse_summed_as(dialect, words, plain), dialect.types.held_as(plain)
    if mode == "presence":
        return _PRESENCE.format(column)
    if mode == "flag":
        return _FLAG.format(column)
    if held.startswith("numeric"):
        return words.numeric.format(column, scale_of(held)[1])
    return words.texts.get(held, words.other).format(column)
