"""Segment rows → changes table by table: columns say what each message said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog.segment import SCHEMA, Segment
from penstock.changelog.segment_run import join
from penstock.decode.changes import (
    ChangeSet,
    TableChanges,
    decode_changes,
    side_by_side,
    take_rows,
)
from penstock.model.errors import DecodeError
from penstock.model.lsn import Position
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.messages import (
    UNSET,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Truncate,
    Update,
    Value,
)
from penstock.pgoutput.tuples import Ints
from penstock.source.postgres.capture.assemble import Assembler
from tests.pgoutput_bytes import encode
from tests.stream_model import START, VERSIONS, History, build, describe, histories

A, B = VERSIONS[0][0], VERSIONS[1][0]
Found = dict[Position, tuple[int, int, int, tuple[TableSchema, ...], Message]]


def read(changes: ChangeSet) -> Found:
    """Every change by its position: lsn, xid, time, definitions, and the message it was."""
    found: Found = {}
    for table in changes.tables:
        for position, lsn, xid, micros, message in zip(
            positions(table),
            table.lsn.tolist(),
            table.xid.tolist(),
            table.commit_micros.tolist(),
            messages(table),
            strict=True,
        ):
            assert position not in found
            found[position] = (lsn, xid, micros, (table.table,), message)
    for truncate in changes.truncates:
        stamp = truncate.stamp
        message = Truncate(
            tuple(table.oid for table in truncate.tables),
            truncate.cascade,
            truncate.restart_identity,
        )
        found[stamp.position] = (
            stamp.lsn,
            stamp.xid,
            stamp.commit_micros,
            truncate.tables,
            message,
        )
    return found


def positions(table: TableChanges) -> list[Position]:
    pairs = zip(table.commit_lsn.tolist(), table.ordinal.tolist(), strict=True)
    return [Position(*pair) for pair in pairs]


def messages(table: TableChanges) -> list[Message]:
    columns = range(len(table.table.columns))
    new = images(
        [(table.new_text(c), table.new_unset(c).tolist()) for c in columns], table.new_rows
    )
    old = images(
        [(table.old_text(c), table.old_unset(c).tolist()) for c in columns], table.old_rows
    )
    full = dict(zip(table.old_rows.tolist(), table.old_is_full.tolist(), strict=True))
    oid = table.table.oid
    result: list[Message] = []
    for row, op in enumerate(table.op.tobytes().decode()):
        kind = None if row not in full else "full" if full[row] else "key"
        if op == "I":
            result.append(Insert(oid, new[row]))
        elif op == "U":
            result.append(Update(oid, old.get(row), kind, new[row]))  # type: ignore[arg-type]
        else:
            result.append(Delete(oid, old[row], kind))  # type: ignore[arg-type]
    return result


def images(
    columns: Sequence[tuple[pa.Array, list[bool]]], rows: Ints
) -> dict[int, tuple[Value, ...]]:
    values: list[list[Value]] = [
        [
            UNSET if unset else None if text is None else text.encode()
            for text, unset in zip(texts.to_pylist(), mask, strict=True)
        ]
        for texts, mask in columns
    ]
    return {row: tuple(column[i] for column in values) for i, row in enumerate(rows.tolist())}


@settings(max_examples=120)
@given(histories(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_columns_say_what_the_messages_said(history: History, sizes: list[int]) -> None:
    assembler = Assembler(START, describe)
    left = history.messages()
    segments = []
    plan = cycle(sizes)
    while left:
        size = next(plan)
        assembler.add(left[:size])
        del left[:size]
        segments.append(assembler.cut().segment)
    segment = join([s for s in segments if s.rows.num_rows] or [Assembler(START).cut().segment])

    changes = decode_changes(segment.rows, segment.tables, segment.origins)

    expected = {
        c.position: (c.lsn, c.xid, c.micros, c.tables, c.message)
        for c in history.changes
        if not isinstance(c.message, LogicalMessage)
    }
    assert read(changes) == expected
    assert len(changes) == len(history.changes)
    for table in changes.tables:
        assert positions(table) == sorted(positions(table))
    assert [
        (e.stamp.position, e.stamp.origin, e.transactional, e.prefix, e.content)
        for e in changes.messages
    ] == [
        (c.position, c.origin, c.message.transactional, c.message.prefix, c.message.content)
        for c in history.changes
        if isinstance(c.message, LogicalMessage)
    ]
    assert [event.stamp.origin for event in changes.truncates] == [
        c.origin for c in history.changes if isinstance(c.message, Truncate)
    ]


# -- what a segment must not hold --------------------------------------------------------------


def rows(*payloads: bytes, version: int = 0, origin: int = -1) -> pa.RecordBatch:
    """Segment rows with these payloads, as a writer with a bug might leave them."""
    row = {
        "lsn": 1,
        "commit_lsn": 2,
        "xid": 3,
        "commit_ts": 0,
        "relation_id": A.oid,
        "schema_version": version,
        "origin": origin,
    }
    values = [
        {**row, "ordinal": i, "op": payload[0] if payload else 0, "payload": payload}
        for i, payload in enumerate(payloads)
    ]
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)


TABLES = (describe(A), describe(B))
INSERT = encode(Insert(A.oid, (b"1", b"x")))
TRUNCATE = encode(Truncate((A.oid, B.oid), False, True))


def test_rows_made_by_hand_decode() -> None:
    changes = decode_changes(rows(INSERT, INSERT, TRUNCATE), TABLES)
    (table,) = changes.tables
    assert table.new_text(1).to_pylist() == ["x", "x"]
    (truncate,) = changes.truncates
    assert truncate.tables == TABLES
    assert (truncate.cascade, truncate.restart_identity) == (False, True)


def test_no_rows_are_no_changes() -> None:
    changes = decode_changes(rows(), ())
    assert (len(changes), changes.tables) == (0, ())


def test_a_slice_of_rows_is_only_that() -> None:
    payloads = [encode(Insert(A.oid, (b"%d" % n, None))) for n in range(5)]
    (table,) = decode_changes(rows(*payloads).slice(1, 3), TABLES).tables
    assert table.new_text(0).to_pylist() == ["1", "2", "3"]
    assert table.ordinal.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (rows(b""), "without bytes"),
        (rows(INSERT, b"Z"), "unknown kind 'Z'"),
        (rows(INSERT, b"B" + INSERT[1:]), "unknown kind 'B'"),
        (rows(INSERT).set_column(5, SCHEMA.field(5), pa.array([68], pa.uint8())), "another kind"),
        (rows(INSERT, version=2), "definition that its segment does not have"),
        (rows(INSERT, version=-2), "definition that its segment does not have"),
        (rows(INSERT, version=-1), "without a table definition"),
        (rows(INSERT, origin=0), "origin that its segment does not have"),
        (rows(TRUNCATE, version=1), "does not describe"),
        (rows(encode(Truncate((99,), False, False))), r"relations \(99,\)"),
        (rows(TRUNCATE[:-1]), "ends after"),
        (rows(b"M\0"), "ends after"),
        (rows(INSERT[:-1]), "names more bytes"),
    ],
)
def test_a_broken_row_is_refused(batch: pa.RecordBatch, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_changes(batch, TABLES)


def test_a_value_in_binary_form_is_refused_when_asked_for() -> None:
    (table,) = decode_changes(rows(INSERT.replace(b"t\0\0\0\1x", b"b\0\0\0\1x")), TABLES).tables
    assert table.new_text(0).to_pylist() == ["1"]
    with pytest.raises(DecodeError, match=f"^table public.a, column {A.columns[1].name}: .*binary"):
        table.new_text(1)


def test_a_value_that_is_not_utf8_is_refused_when_asked_for() -> None:
    (table,) = decode_changes(rows(encode(Insert(A.oid, (b"1", b"\xff")))), TABLES).tables
    with pytest.raises(DecodeError, match="UTF-8") as found:
        table.new_text(1)
    assert "SQL_ASCII" in found.value.remedy


@pytest.mark.parametrize("column", [0, 1])
def test_a_bad_value_is_blamed_on_its_own_table(column: int) -> None:
    """Tables with one layout are decoded together, whoever's values are asked for."""
    good, bad = (b"1", b"x", None), ((b"one", b"x", None), (b"1", b"\xff", None))[column]
    plan: list[tuple[object, ...]] = [
        ("transaction", None, [("insert", 0, good), ("insert", 1, good), ("insert", 1, bad)])
    ]
    assembler = Assembler(START, describe)
    assembler.add(build(plan).messages())
    segment: Segment = assembler.cut().segment
    first, second = decode_changes(segment.rows, segment.tables).tables
    place = f"^table {second.table.qualified_name}, column {second.table.columns[column].name}: "
    for table in (first, second, first):
        with pytest.raises(DecodeError, match=place):
            table.new_typed(column)


def test_tables_that_share_a_layout_keep_their_rows_apart() -> None:
    plan: list[tuple[object, ...]] = [
        ("transaction", None, [("insert", n % 2, (b"%d" % n, b"x", None)) for n in range(6)])
    ]
    assembler = Assembler(START, describe)
    assembler.add(build(plan).messages())
    segment: Segment = assembler.cut().segment
    found = {
        table.table.name: table.new_typed(0).values.to_pylist()
        for table in decode_changes(segment.rows, segment.tables).tables
    }
    assert found == {"a": [0, 2, 4], "b": [1, 3, 5]}


# -- some of the changes, some of the columns ----------------------------------------------------


@settings(max_examples=120)
@given(histories(), st.randoms(use_true_random=False))
def test_some_changes_and_columns_are_what_they_were(history: History, random: Random) -> None:
    assembler = Assembler(START, describe)
    assembler.add(history.messages())
    segment = assembler.cut().segment
    for table in decode_changes(segment.rows, segment.tables, segment.origins).tables:
        rows = [row for row in range(len(table)) if random.random() < 0.6]
        taken = table.take(np.array(rows, np.int64))
        assert messages(taken) == [messages(table)[row] for row in rows]
        assert positions(taken) == [positions(table)[row] for row in rows]
        assert taken.lsn.tolist() == table.lsn[rows].tolist()

        columns = [c for c in range(len(table.table.columns)) if random.random() < 0.6]
        for whole in (table, taken):
            fewer = whole.select(columns)
            assert fewer.table.columns == tuple(table.table.columns[c] for c in columns)
            assert (fewer.table.oid, fewer.table.qualified_name) == (
                table.table.oid,
                table.table.qualified_name,
            )
            assert messages(fewer) == [narrow(message, columns) for message in messages(whole)]
            assert positions(fewer) == positions(whole)
            first, last = sorted(random.choices(range(len(whole) + 1), k=2))
            assert messages(fewer.part(first, last)) == messages(fewer)[first:last]
            some = np.arange(first, last)
            assert messages(fewer.take(some)) == messages(fewer)[first:last]


def narrow(message: Message, columns: Sequence[int]) -> Message:
    def fewer(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(values[column] for column in columns)

    match message:
        case Insert():
            return replace(message, new=fewer(message.new))
        case Update():
            old = None if message.old is None else fewer(message.old)
            return replace(message, old=old, new=fewer(message.new))
        case Delete():
            return replace(message, old=fewer(message.old))
    raise AssertionError(message)


def two_tables() -> tuple[TableChanges, TableChanges]:
    """Six rows each; they share one layout."""
    plan: list[tuple[object, ...]] = [
        ("transaction", None, [("insert", n % 2, (b"%d" % n, b"x", None)) for n in range(12)])
    ]
    assembler = Assembler(START, describe)
    assembler.add(build(plan).messages())
    segment: Segment = assembler.cut().segment
    first, second = decode_changes(segment.rows, segment.tables).tables
    return first, second


def test_what_was_taken_together_still_lies_side_by_side() -> None:
    first, second = two_tables()
    a, b = take_rows([first, second], [np.array([1, 3]), None])
    assert b.follows(a)
    assert side_by_side([a, b]).new_text(0).to_pylist() == ["2", "6", *"13579", "11"]
    assert side_by_side([a.part(1, 2), b]).ordinal.tolist() == [6, 1, 3, 5, 7, 9, 11]
    unchanged = take_rows([first, second], [None, None])
    assert unchanged == (first, second)
    none, all_of_it = take_rows([first, second], [np.zeros(0, np.int64), None])
    assert (len(none), all_of_it.new_text(0).to_pylist()) == (0, [*"13579", "11"])


def test_what_was_taken_apart_does_not_lie_side_by_side() -> None:
    first, second = two_tables()
    every = np.arange(6)
    assert second.follows(first)
    assert not second.follows(first.take(every))
    assert not second.take(every).follows(first.take(every))
    assert not second.select([0]).follows(first)
    assert not second.select([0]).follows(first.select([0]))
    half = first.select([1])
    assert half.part(3, 6).follows(half.part(0, 3))


def test_columns_that_were_not_selected_are_never_decoded() -> None:
    (table,) = decode_changes(rows(encode(Insert(A.oid, (b"1", b"\xff")))), TABLES).tables
    fewer = table.select([0])
    assert fewer.new_typed(0).values.to_pylist() == [1]
    swapped = table.select([1, 0])
    with pytest.raises(DecodeError, match=f"^table public.a, column {A.columns[1].name}: .*UTF-8"):
        swapped.new_text(0)


def test_changes_that_were_not_taken_are_never_decoded() -> None:
    good, bad = encode(Insert(A.oid, (b"1", b"x"))), encode(Insert(A.oid, (b"one", b"x")))
    (table,) = decode_changes(rows(good, bad, good), TABLES).tables
    assert table.take(np.array([0, 2])).new_typed(0).values.to_pylist() == [1, 1]
    with pytest.raises(DecodeError, match=r"^table public\.a, column "):
        table.take(np.array([1])).new_typed(0)
