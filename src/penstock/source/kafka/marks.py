"""What Debezium's messages say of transactions (``provide.transaction.metadata``). Pure.

A transaction's id is ``758:28294712``: the number of the transaction, and the LSN of the message
itself. So the first half is the same in all messages of a transaction, and the second is not: in an
END it is where the commit ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.source.kafka.connect_values import parsed
from penstock.source.kafka.events import Headers, Malformed
from penstock.source.kafka.json_members import members

_ID = re.compile(r"([1-9][0-9]{0,9}):([1-9][0-9]{0,18})")
_LAST_LSN = 2**62
_MOST_EVENTS = 2**32
_CHANGES = frozenset("cudt")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class RowMark:
    """Which row of which transaction a message holds. ``after`` is where the last commit before its
    transaction ends: it rises from transaction to transaction. Before the first one that a
    connector reads it knows none, which is 0; when it says that transaction again, it may know one.
    ``millis`` is the time of the commit.
    """

    xid: int
    lsn: int
    order: int
    after: int
    collection: str
    millis: int

    @property
    def position(self) -> tuple[int, int, int]:
        """It rises along each partition."""
        return self.after, self.order, self.xid

    def is_behind(self, top: tuple[int, int, int]) -> bool:
        """Whether it stands behind the row with that position, in the same partition."""
        after, order, xid = top
        if self.xid == xid and after == 0:
            return self.order > order
        return self.position > top


@dataclass(frozen=True, slots=True)
class End:
    """``lsn`` is where the transaction's commit ends: it rises from END to END. ``counts`` is how
    many events each table has, ``total`` how many there are.
    """

    xid: int
    lsn: int
    counts: Mapping[str, int] = field(hash=False)
    total: int
    millis: int


@dataclass(frozen=True)
class Unmarked:
    """A change that names no transaction."""

    op: str


def read_mark(value: bytes | None, headers: Headers) -> RowMark | Unmarked | None:
    """What the message of a row says of its transaction; None for one that is in none: a row that
    was there, a tombstone, a logical message. Raises Malformed.
    """
    if any(name.startswith("penstock.") for name in headers):
        raise Malformed("it names Penstock as its writer, which marks no transactions")
    if value is None:
        return None
    try:
        payload = _payload(value)
        if not isinstance(payload, dict) or payload.get("op") == "m":
            return None
        told = payload.get("transaction")
        op = payload.get("op")
        if told is None:
            return Unmarked(op) if op in _CHANGES else None
        source = payload["source"]
        xid, lsn = _id(told["id"])
        if int(source["txId"]) != xid:
            raise Malformed(f"it is of transaction {source['txId']}, and of {xid}")
        return RowMark(
            xid,
            lsn,
            _number(told["total_order"], 1, _MOST_EVENTS),
            _after(source["sequence"]),
            f"{source['schema']}.{source['table']}",
            _number(source["ts_ms"], 0, _LAST_LSN),
        )
    except KeyError as error:
        raise Malformed(f"what it says of its transaction has no {error.args[0]!r}") from None
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise Malformed(f"what it says of its transaction cannot be read: {error}") from None


def read_boundary(value: bytes | None) -> End | None:
    """What a message of the transaction topic says; None for a BEGIN. Raises Malformed."""
    if value is None:
        raise Malformed("it has no value")
    try:
        payload = _payload(value)
        xid, lsn = _id(payload["id"])
        if payload["status"] == "BEGIN":
            return None
        if payload["status"] != "END":
            raise Malformed(f"it has the unknown status {str(payload['status'])[:40]!r}")
        counts = {
            str(each["data_collection"]): _number(each["event_count"], 1, _MOST_EVENTS)
            for each in payload["data_collections"] or ()
        }
        total = _number(payload["event_count"], 0, _MOST_EVENTS)
        return End(xid, lsn, counts, total, _number(payload.get("ts_ms") or 0, 0, _LAST_LSN))
    except KeyError as error:
        raise Malformed(f"it has no {error.args[0]!r}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"it is no BEGIN or END of a transaction: {error}") from None


def topic_of(transaction_topic: str, collection: str) -> str:
    """Where Debezium writes the rows of a table, beside its transaction topic."""
    prefix = transaction_topic.rpartition(".")[0]
    return _NOT_IN_NAMES.sub("_", f"{prefix}.{collection}" if prefix else collection)


def _payload(value: bytes) -> Any:
    whole = members(value.decode())
    if whole.keys() == {"schema", "payload"}:
        return parsed(whole["payload"])
    return parsed(value.decode())


def _id(text: object) -> tuple[int, int]:
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise Malformed(
            f"{str(text)[:40]!r} is no id of a transaction: Debezium's Postgres connector, version "
            "2 and later, writes its number, a colon and an LSN"
        )
    return _number(found[1], 1, 2**32), _number(found[2], 1, _LAST_LSN)


def _after(sequence: str) -> int:
    """``["28295584","28295600"]``: the end of the last commit, null before the first, and the
    change's own LSN.
    """
    last, _ = parsed(sequence)
    return 0 if last is None else _number(last, 0, _LAST_LSN)


def _number(value: object, least: int, end: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"a number was expected, found {str(value)[:40]!r}")
    number = int(value)
    if not least <= number < end:
        raise ValueError(f"{number} is out of range")
    return number
