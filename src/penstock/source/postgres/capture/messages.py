"""Which logical messages of the stream are taken, and which of them tell of schema changes.

Anybody who may connect to the source can send some, of any prefix and up to a gigabyte in size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.model.schema_message import PREFIX, SEAL_BYTES, SealKey
from penstock.pgoutput.tuples import Bytes, Ints

_SCHEMA_PREFIX = PREFIX.encode()
# Kind, flags and LSN stand before the prefix; a zero byte and the content's length behind it.
_HEAD = 10
_CONTENT = _HEAD + len(_SCHEMA_PREFIX) + 5


@dataclass(frozen=True)
class TakenMessages:
    """What became of some messages, by their places.

    ``asked`` are those that the pipeline file asks for. ``bodies`` is where the body of one begins
    that tells of a schema change, 0 for all others. ``forged`` is how many pretend to.
    """

    asked: npt.NDArray[np.bool_]
    bodies: Ints
    forged: int

    @property
    def taken(self) -> npt.NDArray[np.bool_]:
        return self.asked | (self.bodies > 0)


class MessageFilter:
    """``prefixes`` are those that the pipeline file asks for. ``read_key`` asks the source for the
    key of its triggers, None where there is none; it is asked again when a seal does not hold,
    since somebody may have made the triggers anew.
    """

    def __init__(self, prefixes: Collection[str], read_key: Callable[[], SealKey | None]) -> None:
        self._prefixes = frozenset(prefix.encode() for prefix in prefixes)
        self._longest = max(map(len, (_SCHEMA_PREFIX, *self._prefixes)))
        self._read_key = read_key
        self._key = read_key()

    def take(self, data: Bytes, starts: Ints, ends: Ints, xids: Ints) -> TakenMessages:
        """``starts`` and ``ends`` are where messages lie in ``data``; ``xids`` are theirs, and 0
        for a message that belongs to no transaction.
        """
        asked = np.zeros(len(starts), bool)
        bodies = np.zeros(len(starts), np.int64)
        sealed = []
        for row, start in enumerate(starts.tolist()):
            prefix = self._prefix(data, start + _HEAD)
            if prefix == _SCHEMA_PREFIX:
                sealed.append(row)
            asked[row] = prefix in self._prefixes
        forged = [row for row in sealed if not self._holds(data, starts[row], ends[row], xids[row])]
        if forged and (key := self._read_key()) != self._key:
            self._key = key
            forged = [r for r in forged if not self._holds(data, starts[r], ends[r], xids[r])]
        ours = np.setdiff1d(np.array(sealed, np.int64), forged)
        bodies[ours] = starts[ours] + _CONTENT + SEAL_BYTES
        return TakenMessages(asked, bodies, len(forged))

    def _prefix(self, data: Bytes, start: int) -> bytes:
        # Not all of it: what a stranger sends may be a gigabyte without end.
        return data[start : start + self._longest + 1].tobytes().partition(b"\0")[0]

    def _holds(self, data: Bytes, start: int, end: int, xid: int) -> bool:
        if self._key is None or not xid:
            return False
        return self._key.holds(data[start + _CONTENT : end].tobytes(), int(xid))
