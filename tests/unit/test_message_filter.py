"""Which logical messages reach the log: those that are asked for, and what the triggers sealed."""

from __future__ import annotations

import hmac
import json
import struct
from hashlib import sha256

import pytest

from penstock.model.lsn import NOTHING
from penstock.model.schema_message import PREFIX, SCHEMA_CHANGE, SealKey
from penstock.source.postgres.capture.assemble import Assembler, Cut
from penstock.source.postgres.capture.messages import MessageFilter

SECRET = bytes(range(64))
KEY = SealKey(bytes(b ^ 0x36 for b in SECRET), bytes(b ^ 0x5C for b in SECRET))
XID = 77
BODY = json.dumps({"xid": str(5 * 2**32 + XID), "tag": "ALTER TABLE", "name": "ä"}).encode()


def message(prefix: bytes, content: bytes, *, transactional: bool = True) -> bytes:
    head = b"M" + struct.pack(">BQ", transactional, 0x900)
    return head + prefix + b"\0" + struct.pack(">I", len(content)) + content


def cut(*messages: bytes, prefixes: tuple[str, ...] = (), key: SealKey | None = KEY) -> Cut:
    """One transaction of these messages."""
    assembler = Assembler(NOTHING, messages=MessageFilter(prefixes, lambda: key))
    begin = b"B" + struct.pack(">QqI", 0x1000, 5, XID)
    commit = b"C" + struct.pack(">BQQq", 0, 0x1000, 0x1008, 5)
    assembler.add(
        [
            memoryview(b"w" + struct.pack(">QQq", 0x900, 0x900, 0) + body)
            for body in (begin, *messages, commit)
        ]
    )
    return assembler.cut()


def rows(found: Cut) -> list[tuple[str, int, bytes]]:
    columns = found.segment.rows.to_pydict()
    return [
        (chr(op), ordinal, payload)
        for op, ordinal, payload in zip(
            columns["op"], columns["ordinal"], columns["payload"], strict=True
        )
    ]


def sealed(body: bytes, key: SealKey = KEY) -> bytes:
    return message(PREFIX.encode(), key.seal(body) + body)


def test_a_seal_is_hmac_sha256() -> None:
    assert KEY.seal(BODY) == hmac.new(SECRET, BODY, sha256).hexdigest().encode()


def test_what_the_triggers_sealed_stands_in_the_log_as_a_schema_change() -> None:
    asked = message(b"note", b"hello")
    found = cut(asked, sealed(BODY), asked, prefixes=("note",))
    assert rows(found) == [("M", 0, asked), (chr(SCHEMA_CHANGE), 1, b"S" + BODY), ("M", 2, asked)]
    assert found.has_schema_changes
    assert (found.left_out, found.forged) == (0, 0)


@pytest.mark.parametrize(
    "forged",
    [
        message(PREFIX.encode(), b""),
        message(PREFIX.encode(), b"{}"),
        message(PREFIX.encode(), BODY),
        message(PREFIX.encode(), b"\xff" * 1000),
        message(PREFIX.encode(), b"0" * 64 + BODY),
        message(PREFIX.encode(), KEY.seal(BODY) + BODY + b" "),
        message(PREFIX.encode(), KEY.seal(BODY).upper() + BODY),
        sealed(BODY, SealKey(KEY.outer, KEY.inner)),
        # Sealed, and sent again in another transaction.
        sealed(json.dumps({"xid": str(XID + 1), "tag": "DROP TABLE"}).encode()),
    ],
)
def test_whatever_else_has_their_prefix_is_left_out_and_counted(forged: bytes) -> None:
    found = cut(forged, sealed(BODY), forged)
    assert [op for op, _, _ in rows(found)] == ["S"]
    assert (found.left_out, found.forged) == (0, 2)
    found = cut(forged)
    assert not found.has_schema_changes
    assert found.frontier.commit_lsn == 0x1000, "the log goes on"


def test_without_a_key_nothing_is_believed() -> None:
    found = cut(sealed(BODY), key=None)
    assert rows(found) == []
    assert found.forged == 1


def test_a_sealed_message_outside_of_transactions_is_forged() -> None:
    body = json.dumps({"xid": "0", "tag": "DROP TABLE"}).encode()
    assembler = Assembler(NOTHING, messages=MessageFilter((), lambda: KEY))
    loose = message(PREFIX.encode(), KEY.seal(body) + body, transactional=False)
    assembler.add([memoryview(b"w" + struct.pack(">QQq", 0x900, 0x900, 0) + loose)])
    assert assembler.cut().forged == 1


def test_messages_that_nobody_asks_for_do_not_reach_the_log() -> None:
    asked = message(b"note", b"taken")
    found = cut(
        message(b"notes", b"x"), asked, message(b"", b"y"), message(b"not", b"z"),
        message(b"no end" * 10_000, b"huge" * 10_000), prefixes=("note",),
    )  # fmt: skip
    assert rows(found) == [("M", 1, asked)], "and keep their place in the order"
    assert (found.left_out, found.forged) == (4, 0)


def test_triggers_that_were_made_anew_are_believed_and_a_flood_asks_once_a_segment() -> None:
    asked = []
    new = SealKey(b"a" * 64, b"b" * 64)

    def read_key() -> SealKey:
        asked.append(1)
        return KEY if len(asked) == 1 else new

    begin = b"B" + struct.pack(">QqI", 0x1000, 5, XID)
    assembler = Assembler(NOTHING, messages=MessageFilter((), read_key))
    forged = message(PREFIX.encode(), b"x" * 100)
    assembler.add(
        [
            memoryview(b"w" + struct.pack(">QQq", 0x900, 0x900, 0) + body)
            for body in (begin, *[forged] * 500, sealed(BODY, new), *[forged] * 500)
        ]
    )
    found = assembler.cut()
    assert [op for op, _, _ in rows(found)] == ["S"]
    assert found.forged == 1000
    assert len(asked) == 2
