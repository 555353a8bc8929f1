"""Which faults a seed brings, and when: the same for the same seed, and all of them in turn."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PlannedFault:
    """``after`` transactions of the load comes ``kind``; ``amount``, from 0 to 1, is its measure.

    ``in_peace`` waits until the pipeline has got over the one before; otherwise this one comes in
    the middle of that.
    """

    kind: str
    after: int
    amount: float
    in_peace: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_faults(seed: int, count: int, kinds: Collection[str]) -> list[PlannedFault]:
    """What the seed brings of these kinds.

    Seeds deal from packs that hold every kind once, one after another: whoever runs a few seeds
    with consecutive numbers has met every kind.
    """
    first = seed * count
    dealt = [_dealt(number, kinds) for number in range(first, first + count)]
    chance = random.Random(f"faults of {seed}")
    chance.shuffle(dealt)
    return [
        PlannedFault(
            kind,
            after=chance.randint(1, 40),
            amount=chance.random(),
            in_peace=chance.random() < 0.75,
        )
        for kind in dealt
    ]


def _dealt(number: int, kinds: Collection[str]) -> str:
    number_of_pack, place = divmod(number, len(kinds))
    pack = sorted(kinds)
    random.Random(f"pack {number_of_pack}").shuffle(pack)
    return pack[place]
