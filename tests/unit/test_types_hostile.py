"""Any text given to any decoder is a DecodeError or the right value, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode.typed import TypedColumn, decode_text
from penstock.model.errors import DecodeError
from penstock.model.pg_types import builtin_type

NUMERIC_10_2 = ((10 << 16) | 2) + 4
NUMERIC_38_0 = (38 << 16) + 4
ISO = r"\d{4,7}-\d\d-\d\d"
CLOCK = r"\d+:[0-5]\d:[0-5]\d(\.\d{1,6})?"
SPAN = r"( [+-]?\d+ years?)?( [+-]?\d+ mons?)?( [+-]?\d+ days?)?"


def same_float(text: str, value: float) -> bool:
    return repr(float(text)) == repr(value)


def same_bytes(text: str, value: bytes) -> bool:
    return text == "\\x" + value.hex()


def shaped(pattern: str) -> Callable[[str, Any], bool]:
    """For values that other tests compare: here only texts of the right shape may pass."""
    return lambda text, _: re.fullmatch(pattern, text, re.ASCII) is not None


# oid, modifier, the characters that come close to valid, whether a value is right for a text
DECODERS: list[tuple[int, int, str, Callable[[str, Any], bool]]] = [
    (21, -1, "0123456789-+ x", lambda text, value: int(text) == value),
    (20, -1, "0123456789-+ x", lambda text, value: int(text) == value),
    (26, -1, "0123456789-+ x", lambda text, value: int(text) == value),
    (700, -1, "019.-+eEinfaNI", shaped(r"[+-]?\d*\.?\d*([eE][+-]?\d+)?|NaN|-?Infinity")),
    (701, -1, "019.-+eEinfaNI", same_float),
    (16, -1, "tf1", lambda text, value: {"t": True, "f": False}[text] is value),
    (1700, NUMERIC_10_2, "0123456789.-+eN", lambda text, value: Decimal(text) == value),
    (1700, NUMERIC_38_0, "0123456789.-+eN", lambda text, value: Decimal(text) == value),
    (17, -1, "\\x0123af", same_bytes),
    (2950, -1, "0123456789abcdef-", lambda text, value: text.replace("-", "") == value.hex()),
    (1082, -1, "0129- BC", shaped(f"{ISO}( BC)?")),
    (1083, -1, "01259:.", shaped(CLOCK)),
    (1114, -1, "0129-: .BC", shaped(rf"{ISO} {CLOCK}( BC)?")),
    (1184, -1, "0129-: .+BC", shaped(rf"{ISO} {CLOCK}[+-]\d\d(:?\d\d){{0,2}}( BC)?")),
    (
        1186,
        -1,
        "0129-+: .daysmonyear",
        lambda t, _: bool(re.fullmatch(rf"{SPAN}( [+-]?{CLOCK})?", f" {t}")),
    ),
]
NEAR = {
    1082: ["2026-01-02", "0044-03-15 BC", "12026-02-28", "infinity"],
    1083: ["03:04:05.678901", "24:00:00"],
    1114: ["2026-01-02 03:04:05.6789", "0044-03-15 12:00:00 BC", "infinity"],
    1184: ["2026-01-02 03:04:05+00", "0044-03-15 12:00:00.5-05:30 BC"],
    1186: ["1 year 2 mons -3 days +04:05:06.789", "00:00:00"],
    2950: ["3a60f058-fbd3-4c7c-8cab-a6b254a2f749"],
    17: ["\\xdeadbeef", "\\x"],
    1700: ["12345.67", "-0.01", "9" * 38, "NaN"],
}


@st.composite
def spoiled(draw: st.DrawFn, texts: list[str], alphabet: str) -> str:
    """A valid text with one place replaced, dropped or filled in."""
    text = draw(st.sampled_from(texts))
    place = draw(st.integers(0, len(text)))
    return (
        text[:place]
        + draw(st.text(st.sampled_from(alphabet), max_size=2))
        + text[place + draw(st.integers(0, 2)) :]
    )


@pytest.mark.parametrize(
    ("oid", "typmod", "alphabet", "is_right"), DECODERS, ids=lambda value: str(value)[:6]
)
@settings(deadline=None)
@given(data=st.data())
def test_any_text_is_refused_or_right(
    oid: int, typmod: int, alphabet: str, is_right: Callable[[str, Any], bool], data: st.DataObject
) -> None:
    near = st.text(st.sampled_from(alphabet), max_size=45)
    texts = st.none() | near | st.text(max_size=8) | spoiled(NEAR.get(oid, ["12", "1.5"]), alphabet)
    column_texts = data.draw(st.lists(texts, max_size=4))
    column = decoded(column_texts, oid, typmod)
    if column is None:
        return
    lost = [False] * len(column_texts)
    if column.unrepresentable is not None:
        lost = column.unrepresentable.to_pylist()
    values = column.values
    if pa.types.is_temporal(values.type) and not pa.types.is_interval(values.type):
        values = values.cast(pa.int32() if values.type == pa.date32() else pa.int64())
    for text, value, hole in zip(column_texts, values.to_pylist(), lost, strict=True):
        if text is None:
            assert value is None
            assert not hole
        elif hole:
            assert value is None
        else:
            assert is_right(text, value), (text, value)


def decoded(texts: list[str | None], oid: int, typmod: int) -> TypedColumn | None:
    """The decoded column; None where it was refused, which must not hang on other rows."""
    found = builtin_type(oid)
    assert found is not None
    try:
        column = decode_text(pa.array(texts, pa.string()), found, typmod)
    except DecodeError:
        alone = [refuses(text, oid, typmod) for text in texts]
        assert any(alone), f"{texts} are refused only together"
        return None
    column.values.validate(full=True)
    assert len(column.values) == len(texts)
    assert not any(refuses(text, oid, typmod) for text in texts)
    return column


def refuses(text: str | None, oid: int, typmod: int) -> bool:
    found = builtin_type(oid)
    assert found is not None
    try:
        decode_text(pa.array([text], pa.string()), found, typmod)
    except DecodeError:
        return True
    return False
