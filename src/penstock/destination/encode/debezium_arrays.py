"""Arrays: their elements are written all at once, in the form of the element's type."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from hashlib import md5

import pyarrow as pa

from penstock.decode.types.array_text import ArrayText, split_array
from penstock.destination.encode.debezium_form import Content, Form
from penstock.destination.encode.json_values import TEXT
from penstock.table_schema import PgType

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
    arrays = [None if value is None else split_array(value) for value in text.to_pylist()]
    elements = [element for array in arrays if array is not None for element in array.elements]
    tokens = iter(form.write(pa.array(elements, pa.string())).tokens().to_pylist())
    written = [None if array is None else _nested(array, tokens) for array in arrays]
    return Content(pa.array(written, TEXT))


def _nested(array: ArrayText, tokens: Iterator[str]) -> str:
    rows = [next(tokens) for _ in array.elements]
    for length in reversed(array.dimensions[1:]):
        rows = [f"[{','.join(rows[at : at + length])}]" for at in range(0, len(rows), length)]
    return f"[{','.join(rows)}]"
