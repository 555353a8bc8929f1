"""Messages in, segments out: whatever the groupings and cuts, the same changes."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog.segment import Segment, decode_segment, encode_segment
from penstock.changelog.segment_name import SegmentName
from penstock.model.errors import DecodeError
from penstock.model.lsn import NOTHING, Frontier
from penstock.pgoutput.messages import (
    Begin,
    Commit,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Truncate,
    Update,
)
from penstock.source.postgres.capture.assemble import Assembler, Cut
from tests.pgoutput_bytes import encode, xlog_data
from tests.stream_model import START, VERSIONS, History, describe, histories, read_back

BEGIN, COMMIT = Begin(0x2000, 5, 7), Commit(0x2000, 0x2030, 5)
TABLE = VERSIONS[0][0]
INSERT = Insert(TABLE.oid, (b"1", b"x"))


def assemble(*messages: Message | bytes) -> Cut:
    assembler = Assembler(START, describe)
    bodies = [m if isinstance(m, bytes) else encode(m) for m in messages]
    assembler.add([memoryview(xlog_data(body)) for body in bodies])
    return assembler.cut()


@settings(max_examples=150)
@given(
    histories(),
    st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 12),
)
def test_any_history_in_any_pieces_gives_its_changes(
    history: History, pieces: list[tuple[int, bool]], withheld: int
) -> None:
    messages = history.messages()
    messages = messages[: len(messages) - withheld] if withheld < len(messages) else messages
    assembler = Assembler(START, describe)
    found = []
    at = 0
    plan = cycle(pieces)
    while at < len(messages):
        size, cutting = next(plan)
        assembler.add(messages[at : at + size])
        at += size
        if cutting:
            found.append(check_cut(assembler, history, messages[:at]))
    found.append(check_cut(assembler, history, messages))
    changes = [change for cut in found for change in read_back(stored(cut))]
    assert changes == history.changes[: len(changes)]
    # What was withheld may end inside a transaction, but nothing of what was fed is missing.
    assert len(changes) == sum(bytes(m[25:26]) in b"IUDTM" for m in messages)
    assert sum(cut.messages for cut in found) == len(messages)
    assert sum(cut.transactions for cut in found) == sum(m[25] == ord("C") for m in messages)


def check_cut(assembler: Assembler, history: History, fed: list[memoryview]) -> Cut:
    cut = assembler.cut()
    kinds = [bytes(message[25:26]) for message in fed]
    assert cut.is_open == (kinds.count(b"B") > kinds.count(b"C"))
    whole = sum(kind == b"C" for kind in kinds) + sum(
        kind == b"M" and not message[26] & 1 for kind, message in zip(kinds, fed, strict=True)
    )
    assert cut.frontier == (history.transactions[whole - 1].frontier if whole else START)
    assert assembler.buffered_bytes == 0
    return cut


def stored(cut: Cut) -> Segment:
    data, digest = encode_segment(cut.segment)
    rows = cut.segment.rows.num_rows
    return decode_segment(data, SegmentName(1, 1, 0, 0, 0, rows, cut.is_open, digest), "a segment")


def test_an_empty_cut_keeps_what_is_open() -> None:
    assembler = Assembler(START, describe)
    groups: list[list[Message]] = [[BEGIN, TABLE, INSERT], [], [INSERT, COMMIT]]
    for bodies in groups:
        assembler.add([memoryview(xlog_data(encode(m))) for m in bodies])
        cut = assembler.cut()
    rows = cut.segment.rows.to_pylist()
    assert [(row["commit_lsn"], row["ordinal"], row["xid"]) for row in rows] == [(0x2000, 1, 7)]
    assert (cut.frontier, cut.is_open) == (Frontier(0x2000, 0x2030), False)


def test_the_frontier_never_goes_back() -> None:
    assembler = Assembler(START, describe)
    assembler.advance(Frontier(0, 0x9000))
    assembler.advance(NOTHING)
    assert assembler.frontier == Frontier(START.commit_lsn, 0x9000)


def test_a_message_outside_of_transactions_is_one_of_its_own() -> None:
    cut = assemble(LogicalMessage(False, 0x3000, "p", b"c"))
    (row,) = cut.segment.rows.to_pylist()
    assert (row["commit_lsn"], row["ordinal"], row["xid"]) == (0x2FFF, 0, 0)
    assert (cut.frontier, cut.is_open) == (Frontier(0x2FFF, 0x3000), False)


def test_a_commit_right_after_such_a_message_has_a_position_of_its_own() -> None:
    """The message names the end of its WAL record, and that is where the commit record begins."""
    before = LogicalMessage(False, BEGIN.commit_lsn, "p", b"c")
    assembler = Assembler(START, describe)
    assembler.add([memoryview(xlog_data(encode(before)))])
    alone = assembler.cut().frontier
    assert START < alone < Frontier(BEGIN.commit_lsn, BEGIN.commit_lsn)
    # A session that starts there gets the transaction: Postgres skips commits below the start.
    assert alone.end_lsn <= BEGIN.commit_lsn
    cut = assemble(before, BEGIN, TABLE, INSERT, COMMIT)
    positions = [(row["commit_lsn"], row["ordinal"]) for row in cut.segment.rows.to_pylist()]
    assert positions == [(0x1FFF, 0), (0x2000, 0)]


def test_a_truncate_names_the_definition_in_force() -> None:
    """A table that was renamed is truncated under its new name, one that follows is not yet."""
    first, _, renamed = VERSIONS[0]
    truncate = Truncate((first.oid,), False, False)
    cut = assemble(BEGIN, first, truncate, renamed, truncate, first, truncate, COMMIT)
    names = [change.tables[0].name for change in read_back(cut.segment)]
    assert names == ["a", "a_renamed", "a"]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((INSERT,), "outside of any transaction"),
        ((Origin(1, "x"),), "outside of any transaction"),
        ((COMMIT,), "without its Begin"),
        ((BEGIN, COMMIT, TABLE, INSERT), "outside of any transaction"),
        ((BEGIN, COMMIT, Origin(1, "x")), "outside of any transaction"),
        ((BEGIN, BEGIN), "before the Commit"),
        ((BEGIN, COMMIT, COMMIT), "without its Begin"),
        ((BEGIN, Commit(0x2001, 0x2030, 5)), "another transaction"),
        (
            (BEGIN, TABLE, INSERT, COMMIT, LogicalMessage(False, 0x1800, "", b"")),
            "out of the order",
        ),
        (
            (BEGIN, TABLE, INSERT, COMMIT, Begin(0x1F00, 5, 8), INSERT, Commit(0x1F00, 0x1F10, 5)),
            "out of the order",
        ),
        (
            (Begin(2**63, 5, 7), TABLE, INSERT, Commit(2**63, 2**63 + 1, 5)),
            "out of the order",
        ),
        ((BEGIN, LogicalMessage(False, 0x1800, "", b"")), "inside of a transaction"),
        ((BEGIN, INSERT, COMMIT), "without describing it"),
        ((BEGIN, INSERT, TABLE, COMMIT), "without describing it"),
        ((BEGIN, Truncate((TABLE.oid,), False, False), TABLE), "without describing it"),
        ((b"Z",), "unknown kind 'Z'"),
        ((b"",), "without a body"),
        ((encode(BEGIN)[:-1],), "Begin message of 20 bytes"),
        ((encode(BEGIN) + b"\0",), "Begin message of 22 bytes"),
        ((BEGIN, encode(COMMIT)[:-1]), "Commit message of 25 bytes"),
        ((BEGIN, b"M\1"), "logical message of 2 bytes"),
        ((BEGIN, b"T\0\0"), "Truncate"),
        ((BEGIN, b"T\xff\xff\xff\xff\0"), "Truncate"),
        ((BEGIN, b"I"), "row message of 1 bytes"),
    ],
)
def test_what_no_server_may_send_is_refused(
    messages: tuple[Message | bytes, ...], reason: str
) -> None:
    with pytest.raises(DecodeError, match=reason):
        assemble(*messages)


def test_order_is_checked_across_cuts() -> None:
    assembler = Assembler(START, describe)
    assembler.add([memoryview(xlog_data(encode(m))) for m in (BEGIN, TABLE)])
    assert assembler.cut().is_open
    assembler.add([memoryview(xlog_data(encode(Begin(0x2500, 5, 8))))])
    with pytest.raises(DecodeError, match="before the Commit"):
        assembler.cut()


def test_a_relation_is_refused_without_a_catalogue() -> None:
    assembler = Assembler(START)
    assembler.add([memoryview(xlog_data(encode(m))) for m in (BEGIN, TABLE)])
    with pytest.raises(DecodeError, match=r"describe public\.a with"):
        assembler.cut()


def test_a_definition_outlives_its_segment_and_changes_only_what_follows() -> None:
    before, after, _ = VERSIONS[0]
    assembler = Assembler(START, describe)
    wide = Update(after.oid, None, None, (b"1", b"x", b"y"))
    assembler.add([memoryview(xlog_data(encode(m))) for m in (BEGIN, before, INSERT)])
    assembler.cut()
    assembler.add([memoryview(xlog_data(encode(m))) for m in (INSERT, after, wide, COMMIT)])
    widths = [len(change.tables[0].columns) for change in read_back(assembler.cut().segment)]
    assert widths == [2, 3]
    assert len(assembler.tables[after.oid].columns) == 3
