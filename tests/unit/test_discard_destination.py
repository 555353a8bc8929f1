"""``discard`` reads every value: one that is not what its type allows must not pass."""

from __future__ import annotations

import json

import pytest

from penstock.destination.discard import DiscardWriter
from penstock.model.errors import DecodeError
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table

KEYED = table("keyed", Column("id", "int8", key=True), Column("at", "timestamptz"))
FULL = table("full", Column("id", "int8"), Column("at", "timestamptz"), identity="f")
NOW = "2026-01-02 03:04:05+00"


def test_the_receipt_counts_changes_and_bytes() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(KEYED, "1", NOW)
        builder.update(KEYED, "2", UNSET, key=["1", None])
        builder.delete(KEYED, key=["2", None])
        builder.truncate(KEYED)
        builder.message("p", b"12345")
    receipt = json.loads(DiscardWriter().write([builder.cut()]))
    # Two new images of 8 + 8 bytes with a byte of validity, two old keys of 8 bytes, a message.
    assert receipt == {"changes": 5, "bytes": 2 * 16 + 1 + 2 * 8 + 5}


@pytest.mark.parametrize("where", ["new", "old key", "old row"])
def test_a_malformed_value_is_found_in_every_image(where: str) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        if where == "new":
            builder.insert(KEYED, "1", "yesterday")
        elif where == "old key":
            builder.delete(KEYED, key=["one", None])
        else:
            builder.update(FULL, "1", NOW, full=["1", "yesterday"])
    with pytest.raises(DecodeError, match=r"yesterday|one"):
        DiscardWriter().write([builder.cut()])


@pytest.mark.parametrize("of", [KEYED, FULL])
def test_no_changes(of: Table) -> None:
    assert json.loads(DiscardWriter().write([])) == {"changes": 0, "bytes": 0}
    builder = ChangeBuilder()
    with builder.transaction():
        builder.truncate(of)
    assert json.loads(DiscardWriter().write([builder.cut()]))["changes"] == 1
