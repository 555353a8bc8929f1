"""Reads back changes that were written as Penstock's own JSON (docs/change_json.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from penstock.destination.memory import MemoryChange
from penstock.model.lsn import Position, parse_lsn


def parse_line(line: bytes | str) -> dict[str, Any]:
    """One event. Numbers stay as they are written: the suite compares texts."""
    event: dict[str, Any] = json.loads(line, parse_int=str, parse_float=str)
    return event


def parse_lines(data: bytes) -> list[dict[str, Any]]:
    """The events of whole lines."""
    assert data == b"" or data.endswith(b"\n")
    return [parse_line(line) for line in data.splitlines()]


def change_from_json(event: dict[str, Any]) -> MemoryChange:
    """The change that an event of ``parse_line`` tells."""
    place = event["position"]
    position = Position(parse_lsn(place["commit_lsn"]), int(place["ordinal"]))
    op = event["op"]
    if op == "message":
        assert event["encoding"] == "utf-8"
        content = event["content"].encode()
        return MemoryChange(position, op, (), prefix=event["prefix"], content=content)
    if op == "truncate":
        tables = tuple((table["schema"], table["table"]) for table in event["tables"])
        return MemoryChange(position, op, tables)
    name = (event["schema"], event["table"])
    if op == "schema":
        return MemoryChange(position, op, (name,))
    new = event["new"]
    assert new is None or not set(new) & set(event["unset"])
    return MemoryChange(position, op, (name,), new, event["old"])


def in_commit_order(changes: Iterable[MemoryChange]) -> list[MemoryChange]:
    """Changes that were found in several places, by position.

    A TRUNCATE stands in the place of each table that it names, and is one change again.
    """
    found: list[MemoryChange] = []
    for change in sorted(changes, key=lambda change: change.position):
        if found and change.op == "truncate" and found[-1].position == change.position:
            tables = {*found.pop().tables, *change.tables}
            found.append(MemoryChange(change.position, "truncate", tuple(sorted(tables))))
        else:
            found.append(change)
    return found
