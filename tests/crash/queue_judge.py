"""What a queue holds, in the form in which the witness tells it, and the judgement of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.model.lsn import Position, parse_lsn
from tests.crash.delivery import expect_equal, expect_recorded
from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.witness import Change, hear_witness
from tests.queue_events import Event, without_departures

_EMBEDDED = "doc"
"""The one column of the load's tables that is of type jsonb."""


def judge_events(
    injured: InjuredPipeline, publications: Sequence[str], events: Iterable[Event]
) -> int:
    """Fail unless every change is among them, whatever came twice; how many there are.

    Numbers in the events are texts, as they are written.
    """
    delivered = _changes(events)
    witness = hear_witness(injured.url, *publications)
    expect_equal(delivered, [_with_embedded(change) for change in witness])
    expect_recorded(delivered, injured.load.committed, injured.load.in_doubt)
    return len(delivered)


def _changes(events: Iterable[Event]) -> list[Change]:
    """As the witness tells them, each once."""
    changes = map(_change, without_departures(events))
    found = {(change.position, change.table): change for change in changes}
    return sorted(found.values(), key=lambda change: (change.position, change.table))


def _change(value: dict[str, Any]) -> Change:
    position, op = _position(value), value["op"]
    if op == "message":
        content = value["content"]
        raw = content.encode() if value["encoding"] == "utf-8" else base64.b64decode(content)
        return Change(position, value["prefix"], op, {"content": raw.hex()})
    if op == "truncate":
        (table,) = value["tables"]
        return Change(position, table["table"], op)
    return Change(position, value["table"], op, _texts(value["new"]), _texts(value["old"]))


def _texts(row: dict[str, Any] | None) -> dict[str, str | None] | None:
    """Values as Postgres writes them, but for JSON, which is embedded."""
    if row is None:
        return None
    return {
        name: json.dumps(value, sort_keys=True)
        if name == _EMBEDDED and value is not None
        else {True: "t", False: "f"}.get(value, value)
        for name, value in row.items()
    }


def _with_embedded(change: Change) -> Change:
    """What the witness tells, with JSON in the form that embedded JSON has here."""
    return change._replace(new=_parsed(change.new), old=_parsed(change.old))


def _parsed(row: dict[str, str | None] | None) -> dict[str, str | None] | None:
    if row is None or row.get(_EMBEDDED) is None:
        return row
    value = json.loads(row[_EMBEDDED] or "", parse_int=str, parse_float=str)
    return {**row, _EMBEDDED: None if value is None else json.dumps(value, sort_keys=True)}


def _position(value: dict[str, Any]) -> Position:
    place = value["position"]
    return Position(parse_lsn(place["commit_lsn"]), int(place["ordinal"]))
