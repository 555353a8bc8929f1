"""Numbers: floats, numeric under each of Debezium's ways to handle decimals, and money."""

from __future__ import annotations

import base64
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.types.text_column import MalformedTextError
from penstock.destination.encode.debezium.base64 import base64_of_decimals
from penstock.destination.encode.debezium.form import Content, Form, as_it_is
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.json_values import TEXT, join
from penstock.model.pg_types import numeric_modifier
from penstock.model.table_schema import PgType

_NOT_FINITE = pa.array(["NaN", "Infinity", "-Infinity"], TEXT)
_SPELLED = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
_NO_CASH, _CASH = r"[^0-9.-]", r"^-?[0-9]+\.[0-9][0-9]$"
_NUMERIC = 1700
_MOST_DIGITS = 200_000  # more than any numeric has
_ZERO = "AA=="
_DIGITS = 38
"""As many as a decimal128 holds."""

_NULL = pa.scalar(None, TEXT)


def float_form(kind: str) -> Form:
    return Form({"type": kind}, _floats, "0.0", computed="0.0")


def numeric_form(typmod: int, options: DebeziumOptions) -> Form:
    """A numeric; without a precision each of its values has a scale of its own."""
    modifier = numeric_modifier(typmod)
    scale = 0 if modifier is None else max(modifier[1], 0)
    if options.decimals == "double":
        return Form({"type": "double"}, _floats, "0.0", computed="0.0")
    if options.decimals == "string":
        zero = f'"{0:.{scale}f}"'
        return Form({"type": "string"}, _decimal_texts, zero, computed=zero)
    if modifier is None:
        fields = [_field("int32", "scale"), _field("bytes", "value")]
        schema = {
            "type": "struct",
            "fields": fields,
            "name": "io.debezium.data.VariableScaleDecimal",
            "version": 1,
            "doc": "Variable scaled decimal",
        }
        return Form(schema, _variable_scale, f'{{"scale":0,"value":"{_ZERO}"}}')
    precision = modifier[0] - min(modifier[1], 0)
    schema = _decimal_schema(scale, {"connect.decimal.precision": str(precision)})
    write = partial(_fixed_scale, scale=scale)
    return Form(schema, write, f'"{_ZERO}"', computed=f'"{_ZERO}"')


def money_form(options: DebeziumOptions) -> Form:
    """Money has two decimals here, as it has in most locales; Debezium's own default, too."""
    if options.decimals == "double":
        return Form({"type": "double"}, _cash_numbers, "0.0", computed="0.0")
    if options.decimals == "string":
        return Form({"type": "string"}, _cash_texts, '"0.00"', computed='"0.00"')
    return Form(_decimal_schema(2, {}), _cash_digits, f'"{_ZERO}"', computed=f'"{_ZERO}"')


def rescaled(text: str, pg_type: PgType, typmod: int) -> str:
    """The text of a numeric with all the decimals that its column has; others as they are."""
    modifier = numeric_modifier(typmod)
    if pg_type.oid != _NUMERIC or modifier is None or text in _SPELLED:
        return text
    return _with_scale(text, max(modifier[1], 0))


def _with_scale(text: str, scale: int) -> str:
    try:
        with localcontext(prec=_MOST_DIGITS):
            return f"{Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP):f}"
    except InvalidOperation:
        raise MalformedTextError("expected digits with an optional minus and a point") from None


def _field(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "optional": False, "field": name}


def _decimal_schema(scale: int, parameters: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": str(scale), **parameters},
    }


def _floats(text: pa.Array) -> Content:
    """JSON has no word for what is not finite: these are strings."""
    text = text.cast(TEXT)
    special = pc.is_in(text, value_set=_NOT_FINITE)
    if pc.any(special).as_py():
        return Content(pc.if_else(special, join('"', text, '"'), text))
    return Content(text)


def _decimal_texts(text: pa.Array) -> Content:
    text = text.cast(TEXT)
    special = pc.is_in(text, value_set=_NOT_FINITE)
    if pc.any(special).as_py():
        for plain, spelled in _SPELLED.items():
            same = pc.equal(text, pa.scalar(plain, TEXT))
            text = pc.if_else(pc.fill_null(same, False), pa.scalar(spelled, TEXT), text)
    return Content(text, quoted=True)


def _fixed_scale(text: pa.Array, scale: int) -> Content:
    """The digits without their point, as an integer; null where it is not finite."""
    text = text.cast(TEXT)
    point = pc.add(pc.find_substring(text, ".").cast(pa.int64()), scale + 1 if scale else 1)
    expected = pc.binary_length(text).cast(pa.int64()) if scale else pa.scalar(0, pa.int64())
    other = pc.fill_null(pc.not_equal(point, expected), False)
    if pc.any(other).as_py():
        # Postgres writes just the scale, but for what is not finite.
        own = [
            value if value in _SPELLED else _with_scale(value, scale)
            for value in text.filter(other).to_pylist()
        ]
        text = pc.replace_with_mask(text, other, pa.array(own, TEXT))
    return Content(_integers(text, scale), quoted=True)


def _variable_scale(text: pa.Array) -> Content:
    """A structure of scale and digits, without zeros at the end of the fraction."""
    text = text.cast(TEXT)
    pointed = pc.find_substring(text, ".")
    if pc.any(pc.greater_equal(pointed, 0)).as_py():
        trimmed = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
        text = pc.if_else(pc.greater_equal(pointed, 0), trimmed, text)
    scale = pc.if_else(
        pc.less(pc.find_substring(text, "."), 0),
        pa.scalar(0, pa.int64()),
        pc.subtract(
            pc.subtract(pc.binary_length(text), 1), pc.find_substring(text, ".").cast(pa.int64())
        ),
    )
    digits = _integers(text, None)
    return Content(join('{"scale":', scale.cast(TEXT), ',"value":"', digits, '"}'))


def _integers(text: pa.Array, scale: int | None) -> pa.Array:
    """Base64 of the digits of each number as one integer; null where it is not finite."""
    digits = pc.replace_substring(text, ".", "") if scale != 0 else text
    special = pc.is_in(text, value_set=_NOT_FINITE)
    if pc.any(special).as_py():
        digits = pc.if_else(special, _NULL, digits)
    longest = pc.max(pc.binary_length(digits)).as_py() or 0
    if longest <= _DIGITS:
        return _short_integers(digits)
    short = pc.less_equal(pc.binary_length(digits), _DIGITS)
    written = _short_integers(pc.if_else(short, digits, _NULL))
    long = pc.fill_null(pc.invert(short), False)
    own = pa.array([_long_integer(value) for value in digits.filter(long).to_pylist()], TEXT)
    return pc.replace_with_mask(written, long, own)


def _short_integers(digits: pa.Array) -> pa.Array:
    if digits.null_count == len(digits):
        return pa.nulls(len(digits), TEXT)
    if (pc.max(pc.binary_length(digits)).as_py() or 0) <= 18:
        numbers = digits.cast(pa.int64()).cast(pa.decimal128(19, 0))
    else:
        numbers = digits.cast(pa.decimal128(_DIGITS, 0))
    return base64_of_decimals(numbers)


def _long_integer(digits: str) -> str:
    number = int(Decimal(digits))  # not of the text: that takes some 4300 digits
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(length, "big", signed=True)).decode()


def _plain_cash(text: pa.Array) -> pa.Array:
    """``-$1,234.50`` as ``-1234.50``; null where the server's locale writes it in another way."""
    plain = pc.replace_substring_regex(text.cast(TEXT), _NO_CASH, "")
    return pc.if_else(pc.match_substring_regex(plain, _CASH), plain, _NULL)


def _cash_texts(text: pa.Array) -> Content:
    return Content(_plain_cash(text), quoted=True)


def _cash_numbers(text: pa.Array) -> Content:
    return as_it_is(_plain_cash(text))


def _cash_digits(text: pa.Array) -> Content:
    return _fixed_scale(_plain_cash(text), scale=2)
