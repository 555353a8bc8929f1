"""Text columns as COPY lines, against a reader of that format written after its documentation."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode.copy_text import copy_lines, split_lines
from penstock.decode.text_bytes import text_bytes

_SPECIAL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

# What a Postgres text can hold: anything but NUL and lone surrogates.
texts = st.one_of(
    st.sampled_from(["", "\\N", "\\.", "\\", "\\\\N", "\t", "\r\n", "\x7f\x01", "é日本🎉", "\\t"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
)


def read_field(field: str) -> str | None:
    if field == "\\N":
        return None
    found, place = [], 0
    while place < len(field):
        if field[place] == "\\":
            place += 1
            found.append(_SPECIAL.get(field[place], field[place]))
        else:
            found.append(field[place])
        place += 1
    return "".join(found)


def read_copy(data: bytes) -> list[list[str | None]]:
    text = data.decode()
    assert text == "" or text.endswith("\n")
    return [
        [read_field(field) for field in line.split("\t")]
        for line in text.removesuffix("\n").split("\n")
    ]


@given(st.lists(st.tuples(st.none() | texts, st.none() | texts), min_size=1, max_size=8))
def test_every_text_comes_back(rows: list[tuple[str | None, str | None]]) -> None:
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in range(2)]
    lines = copy_lines([columns[0], "7", columns[1]], len(rows))
    found = read_copy(bytes(text_bytes(lines)))
    assert found == [[first, "7", second] for first, second in rows]


@given(st.lists(st.none() | texts, min_size=3, max_size=8), st.data())
def test_a_slice_of_the_lines_is_just_those_lines(
    values: list[str | None], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(values) - 1))
    column = pa.array(["x\\", *values, "\t"], pa.string()).slice(1, len(values))
    lines = copy_lines([column], len(values)).slice(first)
    assert read_copy(bytes(text_bytes(lines))) == [[value] for value in values[first:]]


@pytest.mark.parametrize("columns", [[], ["I"], ["I", "\\N"]])
def test_lines_without_a_column_of_their_own(columns: list[str]) -> None:
    lines = copy_lines(columns, 3)
    assert bytes(text_bytes(lines)).decode() == 3 * ("\t".join(columns) + "\n")


@given(st.lists(st.tuples(texts | st.none(), texts), max_size=5))
def test_lines_are_split_into_what_they_were_made_of(rows: list[tuple[str | None, str]]) -> None:
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in (0, 1)]
    lines = bytes(text_bytes(copy_lines(columns, len(rows))))
    assert split_lines(lines, 2) == columns
