"""What was read back from a queue, event by event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def without_departures(events: Iterable[Event]) -> list[Event]:
    """Changes as Postgres sent them: of a row that left its key, an update under the new one also
    tells what the delete under the old one does.
    """
    found = list(events)
    updates = {_place(event) for event in found if event["op"] == "update"}
    return [e for e in found if e["op"] != "delete" or _place(e) not in updates]


def _place(event: Event) -> tuple[str, int]:
    return event["position"]["commit_lsn"], int(event["position"]["ordinal"])
