"""Which rows were changed after the snapshot that a copied row is of.

The writer copies a table beside its stream, so a copied row may stand behind a newer change of the
same row; the greatest position wins. What is kept here for that is a part of the topic itself: it
is read again after a restart, and let go when no more copied rows come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.model.errors import SourceError
from penstock.source.kafka.events import READ_ORDINAL, Malformed, RowEvent, header_position
from penstock.source.kafka.offsets import Partition, SourcePosition

_MOST_KEYS = 5_000_000

ReadAgain = Callable[[Partition, int], Iterator[tuple[bytes | None, dict[str, bytes]]]]
"""Keys and headers of a partition's messages from its beginning up to an offset. Raises Stopped."""


class Stopped(Exception):
    """Capture was told to stop before it could know what becomes of a message."""


@dataclass
class _Changed:
    """The last change of each key after ``since``, by commit LSN."""

    since: int
    last: dict[bytes, int] = field(default_factory=dict)

    def note(self, place: Partition, key: bytes | None, at: SourcePosition | None) -> None:
        if key is None or at is None or at.ordinal == READ_ORDINAL or at.commit_lsn <= self.since:
            return
        self.last[key] = max(at.commit_lsn, self.last.get(key, 0))
        if len(self.last) > _MOST_KEYS:
            raise SourceError(
                f"more than {_MOST_KEYS:,} rows of {place} were changed while their table was "
                "copied into the topic: which of its copied rows are outdated is not kept for more",
                remedy="let the pipeline that writes the topic copy the table anew when less is "
                "going on (`penstock tables resync`), and start over with `penstock destroy FILE` "
                "and `penstock run FILE`",
            )


class NewerChanges:
    """Of the partitions in which copied rows stand between changes."""

    def __init__(self, read_again: ReadAgain) -> None:
        self._read_again = read_again
        self._changed: dict[Partition, _Changed] = {}

    def note(self, place: Partition, key: bytes | None, at: SourcePosition | None) -> None:
        """Called for every message."""
        if place in self._changed:
            self._changed[place].note(place, key, at)

    def is_stale(self, place: Partition, event: RowEvent, key: bytes, offset: int) -> bool:
        """``offset`` is that of the copied row. Raises Stopped."""
        assert event.position is not None  # noqa: S101 (others are not asked about)
        snapshot = event.position.commit_lsn
        known = self._changed.get(place)
        if known is None or known.since > snapshot:
            known = _Changed(snapshot)
            for other, headers in self._read_again(place, offset):
                # One that cannot be read was left out when it came: it has changed nothing.
                with suppress(Malformed, ValueError):
                    known.note(place, other, header_position(headers))
            # Only now: half of it would pass outdated rows.
            self._changed[place] = known
        return known.last.get(key, 0) > snapshot

    def forget(self) -> None:
        """No copied row has come for a while."""
        self._changed.clear()


def headers_of(message: Any) -> dict[str, bytes]:
    """A message's headers; of several of one name, the last."""
    return {
        name: value if isinstance(value, bytes) else str(value or "").encode()
        for name, value in message.headers() or ()
    }
