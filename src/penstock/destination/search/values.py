"""Columns of Postgres texts as the JSON values of documents, a column at a time."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.encode.json_arrays import json_arrays
from penstock.destination.encode.json_values import TEXT, join, json_values
from penstock.model.table_schema import PgType

_TIMESTAMP, _TIMESTAMPTZ, _POINT = 1114, 1184, 600
_BOX = 603  # whose arrays have another delimiter
_JSON = frozenset({114, 3802})
_WHOLE_RANGES = frozenset({3904, 3926})
_RANGES = frozenset({*_WHOLE_RANGES, 3906, 3908, 3910, 3912})
_BOUNDS = r'^(?P<open>[\[\(])"?(?P<low>[^",]*)"?,"?(?P<high>[^",]*)"?(?P<close>[\]\)])$'
_ENDLESS = r"^-?infinity$"


def field_values(text: pa.Array, pg_type: PgType, *, flat_json: bool) -> pa.Array:
    """The values as JSON, null where they are null."""
    if text.null_count == len(text):
        return pa.nulls(len(text), TEXT)
    while pg_type.kind == "domain" and pg_type.inner is not None:
        pg_type = pg_type.inner
    if pg_type.kind == "array" and pg_type.inner is not None and pg_type.inner.oid != _BOX:
        tokens = partial(_tokens, pg_type=pg_type.inner, flat_json=flat_json)
        return json_arrays(text.cast(pa.string()), tokens)
    text = text.cast(TEXT)
    if pg_type.kind == "range" and pg_type.oid in _RANGES:
        return _ranges(text, pg_type.oid)
    if pg_type.kind != "base":
        return _json(text, pg_type)
    if pg_type.oid in (_TIMESTAMP, _TIMESTAMPTZ):
        return join('"', _times(text), '"')
    if pg_type.oid == _POINT:
        return _points(text)
    if pg_type.oid in _JSON and flat_json:
        return _objects(_json(text, pg_type))
    return _json(text, pg_type)


def _tokens(text: pa.Array, pg_type: PgType, *, flat_json: bool) -> pa.Array:
    values = field_values(text, pg_type, flat_json=flat_json)
    return pc.fill_null(values, pa.scalar("null", TEXT))


def _json(text: pa.Array, pg_type: PgType) -> pa.Array:
    values = json_values(text, pg_type)
    if not text.null_count:
        return values
    return pc.if_else(pc.is_valid(text), values, pa.scalar(None, TEXT))


def _times(text: pa.Array) -> pa.Array:
    """As ISO 8601 has them; those that it does not have stay as they are."""
    dated = pc.replace_substring(text, " ", "T", max_replacements=1)
    return pc.replace_substring_regex(dated, r"\+00$", "Z")


def _points(text: pa.Array) -> pa.Array:
    """``(x,y)`` as well-known text: x is the longitude."""
    return pc.replace_substring_regex(text, r"^\((.*),(.*)\)$", r'"POINT (\1 \2)"')


def _objects(values: pa.Array) -> pa.Array:
    """What is no JSON object becomes one, with the member ``value``."""
    is_object = pc.match_substring_regex(values, r"^\s*\{")
    wrapped = join('{"value":', values, "}")
    return pc.if_else(is_object, values, wrapped)


def _ranges(text: pa.Array, oid: int) -> pa.Array:
    """Bounds as members; null where the range is empty. A bound that is missing, or infinity, is
    left out.
    """
    parts = pc.extract_regex(text, _BOUNDS)
    low = _bound(pc.struct_field(parts, "low"), oid)
    high = _bound(pc.struct_field(parts, "high"), oid)
    opening = pc.if_else(pc.equal(pc.struct_field(parts, "open"), "["), '"gte":', '"gt":')
    closing = pc.if_else(pc.equal(pc.struct_field(parts, "close"), "]"), '"lte":', '"lt":')
    first = pc.if_else(pc.equal(low, ""), "", pc.binary_join_element_wise(opening, low, ""))
    last = pc.if_else(pc.equal(high, ""), "", pc.binary_join_element_wise(closing, high, ""))
    both = pc.and_(pc.not_equal(low, ""), pc.not_equal(high, ""))
    comma = pc.if_else(both, ",", "")
    return join("{", first.cast(TEXT), comma.cast(TEXT), last.cast(TEXT), "}")


def _bound(text: pa.Array, oid: int) -> pa.Array:
    text = pc.if_else(pc.match_substring_regex(text, _ENDLESS), "", text.cast(pa.string()))
    if oid in _WHOLE_RANGES:
        return text
    quoted = pc.binary_join_element_wise('"', _times(text), '"', "")
    return pc.if_else(pc.equal(text, ""), "", quoted)
