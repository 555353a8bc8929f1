"""Whether tasks hand the rows of the next batch over, or stage them. Pure."""

from __future__ import annotations

from penstock.destination.postgres.staging.receipt import StagedBatch

# The driver's session is one. Where many tasks fill staging tables side by side, merging these
# takes it less time than parsing all lines itself.
_MOST_TASKS = 2
_SMALL_BYTES = 8 * 2**20
_FIRST_REST = 8
_LONGEST_REST = 1024


class HandoverChoice:
    """Chosen anew for each batch, by what came of those before.

    A batch that was handed over and had to be staged after all costs twice. Then some are staged,
    and more of them each time.
    """

    def __init__(self) -> None:
        self._rest = 0
        self._next_rest = _FIRST_REST
        self._gains = True
        self._hands = True
        """Whether the last batch with rows had some that were handed over."""

    def next(self) -> bool:
        """Whether the next batch is to be handed over."""
        found = self._gains and not self._rest
        self._rest = max(0, self._rest - 1)
        return found

    @property
    def is_likely(self) -> bool:
        """Whether it will be, and has rows to hand over, going by the last one. For any thread."""
        return self._gains and not self._rest and self._hands

    def committed(self, tasks: int, batch: StagedBatch) -> None:
        """A batch of so many tasks was committed: staged, or copied straight into its targets."""
        self._gains = tasks <= _MOST_TASKS or batch.size <= _SMALL_BYTES
        if batch.runs:
            self._hands = batch.is_handed
        if batch.is_handed:
            self._next_rest = max(_FIRST_REST, self._next_rest // 2)

    def refused(self) -> None:
        """A batch that was handed over had to be staged."""
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
