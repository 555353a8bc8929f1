"""Texts that a warehouse loads: what fits, and what becomes of what does not."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destination.families.warehouse.checked_texts import CheckedTexts, TypeLimits
from penstock.destination.families.warehouse.csv_files import csv_lines, gzipped

SMALL = CheckedTexts(
    has_time=True,
    has_uuid=False,
    has_unsigned=False,
    is_endless=False,
    limits=TypeLimits(text=4, binary=2, document=24, string=8, scale=37),
    infinity="inf",
)


def _fit(
    plain: str, *texts: str | None, nearest: bool = False
) -> tuple[list[str | None], list[bool]]:
    values, unfit = SMALL.fit(pa.array(texts, pa.string()), plain, nearest=nearest)
    return values.to_pylist(), [False] * len(texts) if unfit is None else unfit.tolist()


def test_a_text_is_cut_between_characters_and_only_if_asked_to() -> None:
    assert _fit("text", "abcd", "abcde", "aé€", None) == (
        ["abcd", None, None, None],
        [False, True, True, False],
    )
    assert _fit("text", "abcde", "aé€", nearest=True)[0] == ["abcd", "aé"]


def test_binary_data_is_hexadecimal() -> None:
    assert _fit("bytea", r"\x00ff", r"\x", None, r"\x00ff00") == (
        ["00ff", "", None, None],
        [False, False, False, True],
    )


def test_arrays_are_documents() -> None:
    found, unfit = _fit("int4[]", "{1,NULL}", "{{1},{2}}", None, "{}")
    assert [json.loads(each) if each else None for each in found] == [
        [1, None], [[1], [2]], None, [],
    ]  # fmt: skip
    assert not any(unfit)


def test_a_document_with_a_long_string_is_unfit_wherever_the_string_is() -> None:
    texts = ('{"a": "12345678"}', '{"a": "123456789"}', '{"123456789": 1}', '["1", "123456789"]')
    assert _fit("jsonb", *texts)[1] == [False, True, True, True]
    assert _fit("jsonb", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]")[1] == [True]


def test_a_document_with_a_zero_character_is_unfit() -> None:
    assert _fit("json", r'"\u0000"', r'"\\u0000"', r'"\\\u0000"')[1] == [True, False, True]


@pytest.mark.parametrize(
    ("plain", "text", "value"),
    [
        ("float8", "-Infinity", "-inf"),
        ("float8", "NaN", "NaN"),
        ("numeric(5,2)", "NaN", None),
        ("numeric(5,2)", "1.50", "1.50"),
        ("date", "infinity", None),
        ("date", "10000-01-01", None),
        ("time", "24:00:00", None),
        ("timestamptz", "2026-01-15 12:34:56.789012+00", "2026-01-15 12:34:56.789012+00"),
        ("uuid", "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"),
        ("bool", "t", "t"),
    ],
)
def test_a_value(plain: str, text: str, value: str | None) -> None:
    assert _fit(plain, text) == ([value], [value is None])


@pytest.mark.parametrize(
    ("plain", "text", "value"),
    [
        ("date", "infinity", "9999-12-31"),
        ("timestamp", "4713-01-01 00:00:00 BC", "0001-01-01 00:00:00.000000"),
        ("timestamptz", "infinity", "9999-12-31 23:59:59.999999Z"),
        ("numeric(5,2)", "NaN", None),
    ],
)
def test_the_nearest_value(plain: str, text: str, value: str | None) -> None:
    assert _fit(plain, text, nearest=True) == ([value], [True])


def test_decimals_that_the_engine_has_not_are_texts() -> None:
    assert SMALL.held_as("numeric(38,38)") == "text"
    assert SMALL.held_as("numeric(39,2)") == "text"
    assert SMALL.held_as("numeric(5,-2)") == "numeric(5,-2)"


_VALUES = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(_VALUES, _VALUES, st.none() | st.integers(-5, 5)), max_size=8))
def test_csv_tells_null_from_every_text(
    rows: list[tuple[str | None, str | None, int | None]],
) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    kinds = (pa.string(), pa.string(), pa.int64())
    names = ["a", "b", "c"]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
    assert _read(csv_lines(pa.table(arrays, names=names), "null-1").decode()) == [
        tuple(None if value is None else str(value) for value in row) for row in rows
    ]


def test_the_same_rows_give_the_same_file() -> None:
    once, again = (b"".join(gzipped([b"a\n", b"b\n"])) for _ in range(2))
    assert once == again


def _read(text: str) -> list[tuple[str | None, ...]]:
    """CSV by the letter, with what is quoted told from what is not."""
    rows: list[tuple[str | None, ...]] = []
    row: list[str | None] = []
    at = 0
    while at < len(text):
        if text[at] == '"':
            end, field = at + 1, ""
            while True:
                close = text.index('"', end)
                field += text[end:close]
                if text[close + 1] != '"':
                    break
                field, end = field + '"', close + 2
            value: str | None = field
            at = close + 1
        else:
            end = min(place for place in (text.find(",", at), text.find("\n", at)) if place >= 0)
            value = None if text[at:end] == "null-1" else text[at:end]
            at = end
        row.append(value)
        if text[at] == "\n":
            rows.append(tuple(row))
            row = []
        at += 1
    return rows
