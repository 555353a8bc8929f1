"""The logical messages by which the source tells of schema changes. No I/O.

Every role that may connect can send a logical message with any prefix. So the source's triggers
seal theirs with a key that only they and whoever may replicate can read: a seal holds for one
transaction, and a message without a seal that holds is nobody's word.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

PREFIX = "penstock.schema"
"""The prefix of these messages; others are the user's own."""

SCHEMA_CHANGE = ord("S")
"""What stands in the log for one whose seal holds: this operation, and its body."""

SEAL_BYTES = 64
"""A message begins with its seal, as hexadecimal digits."""

_XIDS = 2**32


@dataclass(frozen=True)
class SealKey:
    """The key of HMAC-SHA256 as its two padded forms: what is left to do, SQL can do as well."""

    inner: bytes
    outer: bytes

    def seal(self, body: bytes) -> bytes:
        return sha256(self.outer + sha256(self.inner + body).digest()).hexdigest().encode()

    def holds(self, content: bytes, xid: int) -> bool:
        """Whether the message was sealed with this key, in the transaction that it came in."""
        seal, body = content[:SEAL_BYTES], content[SEAL_BYTES:]
        if not hmac.compare_digest(seal, self.seal(body)):
            return False
        # What comes in the stream is the lower half of a transaction's number.
        return int(json.loads(body)["xid"]) % _XIDS == xid


@dataclass(frozen=True)
class SchemaMessage:
    """What one statement changed.

    ``tables`` are those that look different now, by oid: their catalogue documents as JSON text,
    None for those that are gone. ``is_rewrite``: their rows were written anew, and no change of a
    row tells of it. ``failure`` is set where the source could not tell what was changed; then
    ``tables`` are without documents, and are those whose rows were written anew.
    ``seen`` are the numbers of the latest changes of each table that the one who tells could see: a
    document knows nothing of others. Without an entry, nothing is known of that.
    """

    tag: str
    version: int = 0
    tables: tuple[tuple[int, str | None], ...] = ()
    is_rewrite: bool = False
    failure: str | None = None
    seen: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: bytes) -> SchemaMessage:
        """``body`` is what was sealed. One that this version cannot read tells that something was
        changed, and not what.
        """
        try:
            value = json.loads(body)
            return cls(
                value["tag"],
                value.get("version") or 0,
                tuple(
                    (
                        told["table"],
                        None if told["document"] is None else json.dumps(told["document"]),
                    )
                    for told in value.get("tables", ())
                ),
                bool(value.get("rewrite")),
                value.get("failure"),
                {
                    told["table"]: frozenset(told["seen"])
                    for told in value.get("tables", ())
                    if told.get("seen") is not None
                },
            )
        except (ValueError, KeyError, TypeError) as error:
            return cls("a statement", failure=f"its message cannot be read: {error!r}")
