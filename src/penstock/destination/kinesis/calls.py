"""Which records go into the next call, so that those of a group stay in order.

In a call that holds two records of a group, the first can fail and the second arrive. So a call has
one of each group at most, and the next comes when it is known that this one is there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.decode.row_values import Ints
from penstock.destination.families.queue.lanes import Hashes

MOST_RECORDS = 500
MOST_BYTES = 5 * 2**20
"""Of all records of a call, with their partition keys."""

Flags = npt.NDArray[np.bool_]


class Pending:
    """Records that are not there yet. True while there are some."""

    def __init__(self, groups: Hashes, sizes: Ints) -> None:
        self._sizes = sizes
        # The records of each group in order, group behind group.
        self._order = np.argsort(groups, kind="stable")
        grouped = groups[self._order]
        starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])[: len(grouped)])
        self._next = starts.copy()
        self._end = np.append(starts[1:], len(grouped))[: len(starts)]
        self._open = np.arange(len(starts))
        self._called = np.arange(0)

    def __bool__(self) -> bool:
        return len(self._open) > 0

    def next_call(self) -> Ints:
        """The rows of the next call: of those that may go, the first."""
        heads = self._order[self._next[self._open]]
        first = _smallest(heads, MOST_RECORDS)
        total = np.cumsum(self._sizes[heads[first]])
        first = first[: max(1, int(np.searchsorted(total, MOST_BYTES, side="right")))]
        self._called = self._open[first]
        return heads[first]

    def called(self, arrived: Flags) -> None:
        """Which records of the last call are there; the others are still to be sent."""
        self._next[self._called[arrived]] += 1
        self._open = self._open[self._next[self._open] < self._end[self._open]]


def _smallest(numbers: Ints, count: int) -> Ints:
    """Where the smallest ones stand, in their order."""
    if len(numbers) <= count:
        return np.argsort(numbers)
    found = np.argpartition(numbers, count)[:count]
    return found[np.argsort(numbers[found])]
