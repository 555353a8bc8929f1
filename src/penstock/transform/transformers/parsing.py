"""Postgres texts as numbers and times, and back."""

from __future__ import annotations

import re
import uuid
from decimal import Decimal, InvalidOperation
from ipaddress import ip_interface
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import ValueRefusedError

MICROSECONDS = pa.timestamp("us")
_PLAIN_DATE = r"^\d{4}-\d\d-\d\d$"
_PLAIN_TIME = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?([+-]\d\d(:\d\d)?)?$"


def integers(values: pa.Array) -> npt.NDArray[np.int64]:
    """Raises ValueRefusedError where a text is no integer of 64 bits."""
    try:
        return np.asarray(values.cast(pa.int64()))
    except pa.ArrowInvalid:
        raise ValueRefusedError("a value is no integer of 64 bits") from None


def integer_texts(numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def floats(values: pa.Array) -> npt.NDArray[np.float64]:
    """Numbers as doubles; NaN and infinities as such. Raises ValueRefusedError."""
    try:
        return np.asarray(values.cast(pa.float64()))
    except pa.ArrowInvalid:
        raise ValueRefusedError("a value is no number") from None


def number_texts(
    numbers: npt.NDArray[np.float64], facts: ColumnFacts, scale: int | None
) -> pa.Array:
    """Doubles as the column writes them; ``scale`` digits behind the point, where it is given."""
    digits = facts.scale if scale is None else scale
    if facts.family == "integer":
        limit = 2.0**facts.bits
        # The largest double below 2^63 is what fits.
        return integer_texts(
            np.clip(np.rint(numbers), -limit, np.nextafter(limit, 0)).astype(np.int64)
        )
    if digits is not None:
        numbers = np.round(numbers, digits)
    if facts.whole is not None:
        limit = 10.0**facts.whole - 10.0 ** -(facts.scale or 0)
        numbers = np.clip(numbers, -limit, limit)
    finite = np.isfinite(numbers)
    texts = pa.array(numbers).cast(pa.string())
    if not finite.all():
        special = np.where(np.isnan(numbers), "NaN", np.where(numbers > 0, "Infinity", "-Infinity"))
        texts = pc.if_else(pa.array(finite), texts, pa.array(special.astype(object), pa.string()))
    return texts


def _plain(values: pa.Array, form: str) -> npt.NDArray[np.bool_]:
    """Which texts have this form. Others may be infinite, which tells nothing of anybody."""
    plain: npt.NDArray[np.bool_] = np.asarray(pc.match_substring_regex(values, form))
    if not plain.all():
        others = values.filter(pa.array(~plain))
        if not pc.all(pc.is_in(others, pa.array(["infinity", "-infinity"]))).as_py():
            raise ValueRefusedError("a date is before the year 1 or after 9999")
    return plain


def days(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Days since 1970 of dates, and which are not infinite. Raises ValueRefusedError."""
    plain = _plain(values, _PLAIN_DATE)
    if plain.all():
        found = values.cast(pa.date32())
    else:
        found = pc.if_else(pa.array(plain), values, "1970-01-01").cast(pa.date32())
    return np.asarray(found.cast(pa.int32())).astype(np.int64), plain


def day_texts(numbers: npt.NDArray[np.int64]) -> pa.Array:
    kept = np.clip(numbers, _FIRST_DAY, _LAST_DAY)
    return pa.array(kept.astype(np.int32)).cast(pa.date32()).cast(pa.string())


_FIRST_DAY = -719162  # 0001-01-01
_LAST_DAY = 2932896  # 9999-12-31
DAY = 86_400_000_000


def moments(
    values: pa.Array, facts: ColumnFacts
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Microseconds since 1970, and which are not infinite. Raises ValueRefusedError."""
    plain = _plain(values, _PLAIN_TIME)
    fill = "1970-01-01 00:00:00+00" if facts.zoned else "1970-01-01 00:00:00"
    texts = values if plain.all() else pc.if_else(pa.array(plain), values, fill)
    found = texts.cast(pa.timestamp("us", "UTC") if facts.zoned else MICROSECONDS)
    return np.asarray(found.cast(pa.int64())), plain


def moment_texts(numbers: npt.NDArray[np.int64], facts: ColumnFacts) -> pa.Array:
    kept = np.clip(numbers, _FIRST_DAY * DAY, (_LAST_DAY + 1) * DAY - 1)
    texts = pa.array(kept).cast(MICROSECONDS).cast(pa.string())
    # Arrow writes six digits behind the point; Postgres none that are zeros at the end.
    if (kept % 1_000_000).any():
        texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    else:
        texts = pc.utf8_slice_codeunits(texts, 0, 19)
    return pc.binary_join_element_wise(texts, "+00", "") if facts.zoned else texts


def where_plain(plain: npt.NDArray[np.bool_], made: pa.Array, values: pa.Array) -> pa.Array:
    """What was made where values are plain, and these themselves elsewhere."""
    return made if plain.all() else pc.if_else(pa.array(plain), made, values)


def parses(text: str, facts: Any) -> bool:
    """Whether a literal looks like a value of the column's family."""
    try:
        match facts.family:
            case "boolean":
                return text.lower() in ("t", "f", "true", "false")
            case "integer":
                return bool(-(2**facts.bits) <= int(text) < 2**facts.bits)
            case "float":
                float(text)
            case "numeric":
                _sign, digits, power = Decimal(text).as_tuple()
                whole = len(digits) + (power if isinstance(power, int) else 0)
                return bool(facts.whole is None or whole <= facts.whole)
            case "date":
                return bool(re.fullmatch(r"\d{4}-\d\d-\d\d|-?infinity", text))
            case "timestamp":
                return bool(re.match(r"\d{4}-\d\d-\d\d|-?infinity$", text))
            case "uuid":
                uuid.UUID(text)
            case "json":
                import orjson

                orjson.loads(text)
            case "ip":
                ip_interface(text)
            case "array":
                return text.startswith("{") and text.endswith("}")
            case "bytea":
                return bool(re.fullmatch(r"\\x([0-9a-fA-F]{2})*", text))
    except (ValueError, InvalidOperation):
        return False
    return True
