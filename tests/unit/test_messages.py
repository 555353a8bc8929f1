"""One pgoutput message at a time: every kind there and back, and what is refused."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import DecodeError
from penstock.pgoutput.messages import (
    POSTGRES_EPOCH_MICROS,
    UNSET,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Type,
    Unset,
    Update,
    parse_message,
)
from tests.pgoutput_bytes import encode

u32 = st.integers(0, 2**32 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
lsns = st.integers(0, 2**64 - 1)
micros = st.integers(-(2**62), 2**62)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
schemas = names.filter(bool)
values = st.lists(st.one_of(st.none(), st.just(UNSET), st.binary(max_size=9)), max_size=5).map(
    tuple
)
kinds = st.sampled_from(["key", "full"])
columns = st.builds(RelationColumn, names, u32, i32, st.booleans())

messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, lsns, micros, u32),
    st.builds(Commit, lsns, lsns, micros),
    st.builds(Origin, lsns, names),
    st.builds(
        Relation,
        u32,
        schemas,
        names,
        st.sampled_from("dnfi"),
        st.lists(columns, max_size=4).map(tuple),
    ),
    st.builds(Type, u32, schemas, names),
    st.builds(Insert, u32, values),
    st.builds(Update, u32, st.none(), st.none(), values),
    st.builds(Update, u32, values, kinds, values),
    st.builds(Delete, u32, values, kinds),
    st.builds(Truncate, st.lists(u32, max_size=4).map(tuple), st.booleans(), st.booleans()),
    st.builds(LogicalMessage, st.booleans(), lsns, names, st.binary(max_size=9)),
)


@settings(max_examples=300)
@given(messages)
def test_bytes_and_back(message: Message) -> None:
    assert parse_message(encode(message)) == message


@settings(max_examples=150)
@given(messages, st.data())
def test_no_part_of_a_message_is_a_message(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    with pytest.raises(DecodeError):
        parse_message(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(DecodeError):
        parse_message(whole + b"\0")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        # As protocol.sgml lays them out, by hand: the encoder of the tests could err as well.
        (
            b"B\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x05\0\0\x03\xe8",
            Begin(0x1_00000002, POSTGRES_EPOCH_MICROS + 5, 1000),
        ),
        (
            b"C\0\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\x0b\xff\xff\xff\xff\xff\xff\xff\xff",
            Commit(10, 11, POSTGRES_EPOCH_MICROS - 1),
        ),
        (
            b"R\0\0@\0public\0t\0d\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\0v\0\0\0\x06\xa4\0\x06\0\x06",
            Relation(
                16384,
                "public",
                "t",
                "d",
                (
                    RelationColumn("id", 23, -1, True),
                    RelationColumn("v", 1700, 0x60006, False),
                ),
            ),
        ),
        (
            b"U\0\0@\0K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012u",
            Update(16384, (b"1", None), "key", (b"2", UNSET)),
        ),
        (
            b"D\0\0@\0O\0\x01t\0\0\0\0",
            Delete(16384, (b"",), "full"),
        ),
        (
            b"T\0\0\0\x02\x03\0\0@\0\0\0@\x01",
            Truncate((16384, 16385), True, True),
        ),
        (
            b"M\x01\0\0\0\0\0\0\0\x09p\0\0\0\0\x02hi",
            LogicalMessage(True, 9, "p", b"hi"),
        ),
        (b"Y\0\0@\x02\0mood\0", Type(16386, "pg_catalog", "mood")),
        (b"O\0\0\0\0\0\0\0\x07there\0", Origin(7, "there")),
    ],
)
def test_messages_as_the_protocol_lays_them_out(data: bytes, message: Message) -> None:
    assert parse_message(data) == message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends after 0 bytes"),
        (b"Z", "unknown pgoutput message 'Z'"),
        (b"\xff", "unknown pgoutput message"),
        (b"I\0\0\0\1O\0\0", "'O' where 'N' was expected"),
        (b"U\0\0\0\1X\0\0", "'X' where 'N' was expected"),
        (b"U\0\0\0\1K\0\0K\0\0", "'K' where 'N' was expected"),
        (b"D\0\0\0\1N\0\0", "'N' where K or O was expected"),
        (b"I\0\0\0\1N\0\1x", "unknown column kind b'x'"),
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xff", "names -1 bytes"),
        (b"I\0\0\0\1N\0\1t\x7f\xff\xff\xff", "names 2147483647 bytes"),
        (b"I\0\0\0\1N\xff\xffn", "in the middle of a field"),
        (b"T\xff\xff\xff\xff\0", "in the middle of a field"),
        (b"R\0\0\0\1s\0t\0x\0\0", r"unknown replica identity 'x' of s\.t"),
        (b"R\0\0\0\1s\0t", "unterminated name"),
        (b"O\0\0\0\0\0\0\0\0\xff\0", "not UTF-8"),
        (b"M\0\0\0\0\0\0\0\0\0p\0\xff\xff\xff\xff", "names 4294967295 bytes"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        parse_message(data)


def test_unset_is_one_value_and_not_null() -> None:
    assert Unset() is UNSET
    assert copy.deepcopy(UNSET) is UNSET
    assert repr(UNSET) == "UNSET"
    assert UNSET is not None
