"""Arrays: their elements are written all at once, in the form of the element's type."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from hashlib import md5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.types.array_text import ArrayText, split_array
from penstock.decode.types.arrays import decode_array
from penstock.decode.types.text_column import TextColumn, TypedColumn
from penstock.destination.encode.debezium.form import Content, Form
from penstock.destination.encode.json_values import TEXT, join
from penstock.model.table_schema import PgType

_DATE, _UUID = 1082, 2950
_WHOLE = frozenset({20, 23, _DATE})
"""Elements of which Debezium makes the placeholder's characters, each as a number."""


def array_form(element: PgType, form: Form, placeholder: str) -> Form:
    """``form`` is the element's."""
    return Form(
        {"type": "array", "items": {**form.schema, "optional": True}},
        partial(_arrays, form=form),
        "[]",
        _unavailable(element, form, placeholder),
    )


def _unavailable(element: PgType, form: Form, placeholder: str) -> str | None:
    """Only some arrays can say that their value did not change."""
    if element.oid in _WHOLE:
        return json.dumps(list(placeholder.encode()), separators=(",", ":"))
    if element.oid == _UUID:
        digest = md5(placeholder.encode(), usedforsecurity=False).digest()
        return json.dumps([str(uuid.UUID(bytes=digest, version=3))])
    if form.schema["type"] == "string" and form.unavailable is not None:
        return f"[{form.unavailable}]"
    return None


def _arrays(text: pa.Array, form: Form) -> Content:
    """Lower bounds are lost; an array of more dimensions is a list of lists."""
    if text.null_count == len(text):
        return Content(pa.nulls(len(text), TEXT))
    lists = decode_array(TextColumn(text), pa.list_(pa.string()), TypedColumn, ",")
    written = _plain(lists.values, form)
    others = lists.unrepresentable
    if others is None:
        return Content(written)
    return Content(pc.replace_with_mask(written, others, _others(text.filter(others), form)))


def _plain(lists: pa.ListArray, form: Form) -> pa.Array:
    """Arrays of one dimension, all at once."""
    tokens = form.write(lists.flatten()).tokens().cast(TEXT)
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    rows = pa.LargeListArray.from_arrays(pa.array(ends), tokens)
    written = join("[", pc.binary_join(rows, pa.scalar(",", TEXT)), "]")
    if not lists.null_count:
        return written
    return pc.if_else(lists.is_valid(), written, pa.scalar(None, TEXT))


def _others(text: pa.Array, form: Form) -> pa.Array:
    """Arrays of other shapes, one by one; their elements at once."""
    arrays = [split_array(value) for value in text.to_pylist()]
    elements = [element for array in arrays for element in array.elements]
    tokens = iter(form.write(pa.array(elements, pa.string())).tokens().to_pylist())
    return pa.array([_nested(array, tokens) for array in arrays], TEXT)


def _nested(array: ArrayText, tokens: Iterator[str]) -> str:
    rows = [next(tokens) for _ in array.elements]
    for length in reversed(array.dimensions[1:]):
        rows = [f"[{','.join(rows[at : at + length])}]" for at in range(0, len(rows), length)]
    return f"[{','.join(rows)}]"
