"""The logical messages by which the source tells of schema changes. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.model.errors import DecodeError

PREFIX = "penstock.schema"
"""The prefix of these messages; others are the user's own."""


@dataclass(frozen=True)
class SchemaMessage:
    """What one statement changed.

    ``tables`` are those that look different now, by oid: their catalogue documents as JSON text,
    None for those that are gone. ``is_rewrite``: their rows were written anew, and no change of a
    row tells of it. ``failure`` is set where the source could not tell what was changed.
    """

    tag: str
    version: int = 0
    tables: tuple[tuple[int, str | None], ...] = ()
    is_rewrite: bool = False
    failure: str | None = None

    @classmethod
    def parse(cls, content: bytes) -> SchemaMessage:
        try:
            value = json.loads(content)
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
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DecodeError(
                f"the source sent a schema change that cannot be read: {error}",
                remedy="somebody else than Penstock sends logical messages with the prefix "
                f"{PREFIX}; run `penstock init` again, and `penstock tables resync` where tables "
                "were changed",
            ) from error
