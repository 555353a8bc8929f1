"""Arrays of any shape against a reference writer, and against the reader of single values."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.decode.typed import TypedColumn, decode_text, parse_array
from penstock.decode.types.array_text import split_array
from penstock.decode.types.text_column import MalformedTextError
from penstock.model.errors import DecodeError
from penstock.model.pg_types import builtin_type
from penstock.model.table_schema import PgType

TEXTS, INTS, NUMERICS, STAMPS, BOOLS, BYTEAS, BOXES = 1009, 1007, 1231, 1185, 1000, 1001, 1020
DATES, JSONBS, INTERVALS = 1182, 3807, 1187

Nested = list["Nested"] | list[str | None]


def array_type(oid: int) -> PgType:
    found = builtin_type(oid)
    assert found is not None
    return found


def decode(texts: list[str | None], oid: int, typmod: int = -1) -> TypedColumn:
    padded = pa.array(["{pad,☃}", *texts, "{"], pa.string())
    column = decode_text(padded.slice(1, len(texts)), array_type(oid), typmod)
    column.values.validate(full=True)
    return column


def array_text(elements: list[str | None]) -> str:
    """What array_out writes for one dimension."""
    return "{" + ",".join(map(element_text, elements)) + "}"


def element_text(element: str | None) -> str:
    if element is None:
        return "NULL"
    if element and element.upper() != "NULL" and not set(element) & set('"\\{}, \t\n\v\f\r'):
        return element
    escaped = element.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


awkward = st.text(st.sampled_from('ab"\\{},; \tNULnul\x01é☃')) | st.text()
words = st.none() | awkward | st.sampled_from(["NULL", "null", "Null", "", "beta", "NULLx"])


@settings(deadline=None)
@given(st.lists(st.none() | st.lists(words, max_size=6), max_size=8))
@example([["a\\"], ["\\\\"], ['\\"'], ['"'], ["", ""], [], None, [None], [None, "NULL"]])
@example([["plain", "words"], [], ["only"], [None, "beta", None]])
@example([[], []])
def test_arrays_of_text_round_trip(values: list[list[str | None] | None]) -> None:
    texts = [None if value is None else array_text(value) for value in values]
    column = decode(texts, TEXTS)
    assert column.values.to_pylist() == values
    assert column.unrepresentable is None


@settings(deadline=None)
@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1))))
def test_arrays_of_integers_round_trip(values: list[list[int | None] | None]) -> None:
    texts = [
        None if v is None else array_text([None if e is None else str(e) for e in v])
        for v in values
    ]
    column = decode(texts, INTS)
    assert column.values.to_pylist() == values
    assert column.values.type == pa.list_(pa.int32())


def test_arrays_as_postgres_18_wrote_them() -> None:
    written = '{a,NULL,"NULL","null","","a b","x,y","q\\"uo","b\\\\s","{br}",é,"\t",\x01}'
    read = ["a", None, "NULL", "null", "", "a b", "x,y", 'q"uo', "b\\s", "{br}", "é", "\t", "\x01"]
    assert decode([written], TEXTS).values.to_pylist() == [read]
    assert decode(["{a\xa0b,\u2003}"], TEXTS).values.to_pylist() == [["a\xa0b", "\u2003"]]
    assert decode(["{t,f,NULL}"], BOOLS).values.to_pylist() == [[True, False, None]]
    assert decode(['{"\\\\xdead","\\\\x"}'], BYTEAS).values.to_pylist() == [[b"\xde\xad", b""]]
    assert decode(["{1.5,NaN}"], NUMERICS).values.to_pylist() == [["1.5", "NaN"]]
    jsons = '{"{\\"a\\": [1, \\"x\\"]}",NULL}'
    assert decode([jsons], JSONBS).values.to_pylist() == [['{"a": [1, "x"]}', None]]
    boxes = decode(["{(1,1),(0,0);(2,2),(1,1)}"], BOXES).values.to_pylist()
    assert boxes == [["(1,1),(0,0)", "(2,2),(1,1)"]]
    days = decode(['{"0044-03-15 BC"}'], DATES).values.values
    assert days.cast(pa.int32()).to_pylist() == [-735160]
    spans = decode(['{"1 day","1 day 02:00:00"}'], INTERVALS).values.to_pylist()
    assert [tuple(span) for span in spans[0]] == [(0, 1, 0), (0, 1, 7200 * 10**9)]


def test_an_unrepresentable_element_makes_its_array_unrepresentable() -> None:
    column = decode(
        ["{}", '{infinity,"2026-01-02 03:04:05+00"}', None, '{"2026-01-02 03:04:05+00"}'], STAMPS
    )
    assert column.unrepresentable is not None
    assert column.unrepresentable.to_pylist() == [False, True, False, False]
    assert column.values.is_null().to_pylist() == [False, True, True, False]
    prices = decode(["{1.50,NaN}", "{2.25}"], NUMERICS, ((10 << 16) | 2) + 4)
    assert prices.values.to_pylist() == [None, [Decimal("2.25")]]


def test_other_shapes_are_unrepresentable_as_lists() -> None:
    texts: list[str | None] = ["{1,2}", "{{1,2},{3,4}}", None, "[0:2]={1,2,3}", "{NULL}"]
    column = decode(texts, INTS)
    assert column.values.to_pylist() == [[1, 2], None, None, None, [None]]
    assert column.unrepresentable is not None
    assert column.unrepresentable.to_pylist() == [False, True, False, True, False]
    only = decode(["{{1}}"], INTS)
    assert only.values.type == pa.list_(pa.int32())
    assert only.unrepresentable is not None
    assert only.unrepresentable.to_pylist() == [True]


def test_elements_of_other_shapes_are_checked_too() -> None:
    with pytest.raises(DecodeError, match="row 1 "):
        decode(["{{1,2},{3,4}}", "{{1,2},{3,x}}"], INTS)


def test_one_value_of_any_shape() -> None:
    value = parse_array("[-1:0][2:3]={{1,NULL},{3,4}}", array_type(INTS))
    assert value.dimensions == (2, 2)
    assert value.lower_bounds == (-1, 2)
    assert value.values.values.to_pylist() == [1, None, 3, 4]
    assert value.texts.to_pylist() == ["1", None, "3", "4"]
    empty = parse_array("{}", array_type(INTS))
    assert (empty.dimensions, empty.lower_bounds, len(empty.texts)) == ((), (), 0)
    quoted = parse_array('{{"a,b","\\""},{NULL,"NULL"}}', array_type(TEXTS))
    assert quoted.dimensions == (2, 2)
    assert quoted.values.values.to_pylist() == ["a,b", '"', None, "NULL"]
    stamps = parse_array("{infinity}", array_type(STAMPS))
    assert stamps.values.unrepresentable is not None
    with pytest.raises(DecodeError, match="int4"):
        parse_array("{1,x}", array_type(INTS))


@settings(deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_shapes_round_trip(dimensions: list[int], data: st.DataObject) -> None:
    size = 1
    for length in dimensions:
        size *= length
    elements = data.draw(st.lists(words, min_size=size, max_size=size))
    bounds = data.draw(
        st.lists(st.integers(-9, 9), min_size=len(dimensions), max_size=len(dimensions))
    )
    body = [element_text(element) for element in elements]
    for length in reversed(dimensions):
        body = ["{" + ",".join(body[i : i + length]) + "}" for i in range(0, len(body), length)]
    shifted = any(low != 1 for low in bounds)
    prefix = "".join(f"[{low}:{low + n - 1}]" for low, n in zip(bounds, dimensions, strict=True))
    text = f"{prefix}={body[0]}" if shifted else body[0]
    value = parse_array(text, array_type(TEXTS))
    assert value.dimensions == tuple(dimensions)
    assert value.lower_bounds == tuple(bounds)
    assert value.values.values.to_pylist() == elements
    column = decode([None, text], TEXTS)
    if shifted or len(dimensions) > 1:
        assert column.unrepresentable is not None
        assert column.unrepresentable.to_pylist() == [False, True]
    else:
        assert column.values.to_pylist() == [None, elements]


MALFORMED = [
    "",
    "{",
    "}",
    "a",
    "1,2",
    "{1,2",
    "1,2}",
    "{1,,2}",
    "{,}",
    "{1,}",
    "{,1}",
    "{1}}",
    "{1}{2}",
    "}{",
    "{ 1}",
    "{1, 2}",
    "{1} ",
    "{null}",
    "{Null}",
    '{"a}',
    '{a"b}',
    '{"a"b}',
    '{a"b"}',
    '{"a""b"}',
    "{a\\b}",
    '{"a\\"}',
    "{a\\,b}",
    "{{1,2},{3}}",
    "{{1},2}",
    "{1,{2}}",
    "{{}}",
    "{{},{}}",
    "{{{{{{{1}}}}}}}",
    "[0:1]={1,2,3}",
    "[1:3]={{1,2,3}}",
    "[1:3]{1,2,3}",
    "[a:b]={1}",
    "[1:0]={}",
    "{" * 100_000,
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:20])
def test_malformed_arrays_are_refused(text: str) -> None:
    for texts in ([text], ["{a,b}", None, text, "{}"], ['{"q"}', text], ["{{a}}", text]):
        with pytest.raises(DecodeError):
            decode(list(texts), TEXTS)
    with pytest.raises(DecodeError):
        parse_array(text, array_type(TEXTS))


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from('{},"\\ aNUL[]:=1'), max_size=12), max_size=5))
@example(['{"a', 'b"}'])
@example(['{"a\\', '"}'])
@example(['{"a}', '{"},{}'])  # one string runs on into the next row, braces add up
@example(["{a", "b}"])
@example(["{a,}", "{}"])
def test_columns_and_single_values_agree_on_any_text(texts: list[str]) -> None:
    try:
        alone = [split_array(text) for text in texts]
    except MalformedTextError:
        with pytest.raises(DecodeError):
            decode(list(texts), TEXTS)
        return
    column = decode(list(texts), TEXTS)
    expected = [
        None if text.startswith(("[", "{{")) else value.elements
        for text, value in zip(texts, alone, strict=True)
    ]
    assert column.values.to_pylist() == expected
