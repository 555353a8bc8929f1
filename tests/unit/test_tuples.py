"""Whole columns of many row messages at once, against one message at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import DecodeError
from penstock.pgoutput.messages import UNSET, Delete, Insert, Update, Value, parse_message
from penstock.pgoutput.tuples import (
    BINARY,
    NULL,
    PADDING,
    TEXT,
    Bytes,
    Tuples,
    big_endian,
    pad,
    split_rows,
)
from penstock.pgoutput.tuples import UNSET as UNSET_KIND
from tests.pgoutput_bytes import encode

RowMessage = Insert | Update | Delete


def split(bodies: Sequence[bytes], columns: int) -> list[RowMessage]:
    """The messages in ``bodies`` as ``split_rows`` sees them."""
    data = pad(b"".join(bodies))
    sizes = np.array([len(body) for body in bodies], np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    op = data[starts]
    found = split_rows(data, op, starts, ends, columns)
    new = dict(zip(found.new_rows.tolist(), values(data, found.new), strict=True))
    old = dict(zip(found.old_rows.tolist(), values(data, found.old), strict=True))
    full = dict(zip(found.old_rows.tolist(), found.old_is_full.tolist(), strict=True))
    relation = big_endian(data, starts + 1, 4).tolist()
    result: list[RowMessage] = []
    for i, kind in enumerate(op.tolist()):
        old_kind = None if i not in full else "full" if full[i] else "key"
        if kind == ord("I"):
            assert old_kind is None
            result.append(Insert(relation[i], new[i]))
        elif kind == ord("U"):
            result.append(Update(relation[i], old.get(i), old_kind, new[i]))  # type: ignore[arg-type]
        else:
            assert old_kind is not None
            assert i not in new
            result.append(Delete(relation[i], old[i], old_kind))  # type: ignore[arg-type]
    return result


def values(data: Bytes, tuples: Tuples) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for row in range(tuples.rows):
        found: list[Value] = []
        for column in range(len(tuples.kind)):
            kind = tuples.kind[column, row]
            start, length = int(tuples.start[column, row]), int(tuples.length[column, row])
            if kind in (TEXT, BINARY):
                found.append(data[start : start + length].tobytes())
            else:
                assert length == 0
                found.append({NULL: None, UNSET_KIND: UNSET}[int(kind)])
        rows.append(tuple(found))
    return rows


def rows_of(columns: int) -> st.SearchStrategy[list[RowMessage]]:
    value = st.one_of(st.none(), st.just(UNSET), st.binary(max_size=12))
    row = st.lists(value, min_size=columns, max_size=columns).map(tuple)
    relation = st.integers(0, 2**32 - 1)
    kind = st.sampled_from(["key", "full"])
    return st.lists(
        st.one_of(
            st.builds(Insert, relation, row),
            st.builds(Update, relation, st.none(), st.none(), row),
            st.builds(Update, relation, row, kind, row),
            st.builds(Delete, relation, row, kind),
        ),
        min_size=1,
        max_size=8,
    )


@settings(max_examples=150)
@given(st.integers(0, 4).flatmap(lambda n: st.tuples(st.just(n), rows_of(n))))
def test_both_decoders_agree(drawn: tuple[int, list[RowMessage]]) -> None:
    columns, messages = drawn
    bodies = [encode(message) for message in messages]
    assert split(bodies, columns) == [parse_message(body) for body in bodies] == messages


def test_binary_values_are_found_too() -> None:
    body = b"I\0\0\0\1N\0\1b\0\0\0\3xyz"
    assert split([body], 1) == [parse_message(body)]


GOOD = encode(Insert(1, (b"x", None)))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"I", "ends before its tuple"),
        (GOOD[:7], "ends before its tuple"),
        (GOOD[:8], "ends before its last column"),
        (GOOD[:10], "ends inside a length"),
        (GOOD[:13], "names more bytes|ends inside"),
        (GOOD[:-1], "ends before its last column"),
        (GOOD + b"n", "bytes after its tuple"),
        (encode(Insert(1, (b"x",))), "another number of columns than the 2"),
        (encode(Insert(1, (None,) * 3)), "another number of columns than the 2"),
        (GOOD.replace(b"N", b"K", 1), "wrong kind"),
        (b"D" + GOOD[1:], "wrong kind"),
        (b"X" + GOOD[1:], "wrong kind"),
        (GOOD[:-1] + b"?", "unknown value kind"),
        (GOOD.replace(b"\0\0\0\1x", b"\xff\xff\xff\xffx"), "names more bytes"),
        (encode(Delete(1, (None, None), "key")) + b"N", "bytes after its tuple"),
        (encode(Update(1, (None, None), "key", (None, None)))[:12], "ends before its new tuple"),
        (
            encode(Update(1, (None, None), "key", (None, None))).replace(b"N", b"O"),
            "has no new tuple",
        ),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "between", "last"])
def test_a_bad_message_is_found_among_good_ones(bad: bytes, reason: str, place: int) -> None:
    bodies = [GOOD, GOOD]
    bodies.insert(place, bad)
    with pytest.raises(DecodeError, match=reason):
        split(bodies, 2)


def test_the_message_is_named_by_its_place() -> None:
    with pytest.raises(DecodeError, match=f"at byte {len(GOOD)} of its segment"):
        split([GOOD, GOOD[:6]], 2)


def test_padding_lets_reads_start_at_the_end() -> None:
    assert pad(b"ab").tolist() == [97, 98] + [0] * PADDING
    assert big_endian(pad(b""), np.array([0]), 8).tolist() == [0]


@given(st.binary(min_size=8, max_size=20), st.sampled_from([1, 2, 4]))
def test_big_endian_reads_what_struct_reads(data: bytes, size: int) -> None:
    at = np.arange(len(data) - size + 1)
    expected = [int.from_bytes(data[i : i + size], "big") for i in at.tolist()]
    assert big_endian(pad(data), at, size).tolist() == expected
