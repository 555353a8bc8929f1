"""The staging tables of a lane on their way to tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache

from penstock.destination.postgres.staging.stage import Stage


class KnownStages(Mapping[int, Stage]):
    """Stages by the oid of their table; never changed. Pickled once, however many batches take them
    along, and unpickled once by each process: with hundreds of tables that is tens of milliseconds.
    """

    def __init__(self, stages: Mapping[int, Stage]) -> None:
        self._stages = dict(stages)

    def __getitem__(self, oid: int) -> Stage:
        return self._stages[oid]

    def __iter__(self) -> Iterator[int]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __reduce__(self) -> tuple[object, ...]:
        return _unpacked, (self._packed,)

    @cached_property
    def _packed(self) -> bytes:
        return pickle.dumps(self._stages)


# Two lanes, and one that is new: sections and what catches up come without.
@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> KnownStages:
    return KnownStages(pickle.loads(packed))  # noqa: S301 (it came inside of a pickle)
