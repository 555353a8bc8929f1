"""Arrays: their elements are written all at once, in the form of the element's type."""

from __future__ import annotations

import json
import uuid
from functools import partial
from hashlib import md5

import pyarrow as pa

from penstock.destination.encode.debezium.form import Content, Form
from penstock.destination.encode.json_arrays import json_arrays
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
    return Content(json_arrays(text, lambda elements: form.write(elements).tokens()))
