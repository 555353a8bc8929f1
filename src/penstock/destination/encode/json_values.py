"""Columns of Postgres text as JSON values, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.row_values import Ints
from penstock.decode.text_bytes import text_bytes
from penstock.model.table_schema import PgType

# Sixty-four bit offsets: JSON is longer than the text it holds, and a batch may be large.
TEXT = pa.large_string()

Part = Any
"""A column of texts, or one text for all rows."""

BOOLEAN = 16
_INTEGERS = frozenset({20, 21, 23, 26, 28, 29, 5069})  # int8/2/4, oid, xid, cid, xid8
_FLOATS = frozenset({700, 701})
_JSON = frozenset({114, 3802})

_NOT_FINITE = pa.array(["NaN", "Infinity", "-Infinity"], TEXT)
_RARE = re.compile(r"[\x00-\x1f]")
_QUOTE, _BACKSLASH = 0x22, 0x5C
# The backslash first: the others bring some.
_COMMON = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_COMMON_BYTES = frozenset(ord(plain) for plain, _ in _COMMON)


def join(*parts: pa.Array | str) -> pa.Array:
    """The parts of each row behind each other; null where one of them is."""
    return pc.binary_join_element_wise(*map(_operand, parts), _operand(""))


def listed(parts: list[pa.Array], opening: str, closing: str) -> pa.Array:
    """The parts of each row as a JSON array or object. Each begins with a comma or is empty.

    Arrow could skip nulls by itself, but drops rows of which every part is null (pyarrow 26).
    """
    return join(opening, pc.utf8_ltrim(join(*parts), characters=","), closing)


def repeat(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, TEXT), count)


def joined(parts: Sequence[Part], count: int) -> pa.Array:
    """The parts of each of ``count`` rows behind each other."""
    fewer: list[Part] = []
    for part in parts:
        if isinstance(part, str) and fewer and isinstance(fewer[-1], str):
            fewer[-1] += part
        else:
            fewer.append(part)
    if len(fewer) == 1 and isinstance(fewer[0], str):
        return repeat(fewer[0], count)
    return join(*fewer)


def number_texts(numbers: Ints) -> Part:
    """Their digits; one text where all are the same."""
    if len(numbers) and (numbers[0] == numbers).all():
        return str(int(numbers[0]))
    return pa.array(np.ascontiguousarray(numbers)).cast(TEXT)


def spread(values: pa.Array, at: Ints, count: int) -> pa.Array:
    """A column of ``count`` rows with the values at these places, null elsewhere."""
    source = np.zeros(count, np.int64)
    source[at] = np.arange(len(at))
    missing = np.ones(count, bool)
    missing[at] = False
    return values.take(pa.array(source, mask=missing))


def json_values(text: pa.Array, pg_type: PgType) -> pa.Array:
    """The values as JSON, ``null`` where they are null; docs/change_json.md says which how."""
    text = text.cast(TEXT)
    while pg_type.kind == "domain" and pg_type.inner is not None:
        pg_type = pg_type.inner
    oid = pg_type.oid if pg_type.kind == "base" else 0
    if oid in _INTEGERS:
        values = text
    elif oid in _FLOATS:
        special = pc.is_in(text, value_set=_NOT_FINITE)
        values = pc.if_else(special, json_strings(text), text) if pc.any(special).as_py() else text
    elif oid == BOOLEAN:
        values = pc.if_else(pc.equal(text, _operand("t")), _operand("true"), _operand("false"))
    elif oid in _JSON:
        # A line break in JSON text is white space: inside a string it would be escaped.
        values = pc.replace_substring_regex(text, r"[\r\n]", " ")
    else:
        values = json_strings(text)
    return pc.fill_null(values, _operand("null"))


def json_strings(text: pa.Array) -> pa.Array:
    """Texts as strings of JSON; null where one is."""
    return join('"', escaped(text.cast(TEXT)), '"')


def escaped(text: pa.Array) -> pa.Array:
    """What stands between the quotes of JSON strings; null where a text is.

    Most texts need no escape, and most columns one kind of it: a look at their bytes tells which.
    """
    data = np.frombuffer(text_bytes(text), np.uint8)
    special = data[(data < 0x20) | (data == _QUOTE) | (data == _BACKSLASH)]
    if not len(special):
        return text
    present = set(np.unique(special).tolist())
    for plain, escaped in _COMMON:
        if ord(plain) in present:
            text = pc.replace_substring(text, plain, escaped)
    if present - _COMMON_BYTES:
        found = pc.fill_null(pc.match_substring_regex(text, _RARE.pattern), False)
        rows = [_RARE.sub(_escape, row) for row in text.filter(found).to_pylist()]
        text = pc.replace_with_mask(text, found, pa.array(rows, TEXT))
    return text


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _operand(part: pa.Array | str) -> pa.Array | pa.Scalar:
    return pa.scalar(part, TEXT) if isinstance(part, str) else part
