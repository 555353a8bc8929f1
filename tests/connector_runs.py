"""What a connector that marks transactions leaves in topics when it dies and is started again: for
tests of what puts them together.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.source.kafka.marks import End, RowMark
from penstock.source.kafka.offsets import Partition

TRANSACTIONS = Partition("shop.transaction", 0)
LEFT_OUT = "public.elsewhere"
"""A table whose topic nobody reads."""


@dataclass(frozen=True)
class Sent:
    """One message; without mark and end it is of no transaction."""

    place: Partition
    mark: RowMark | None = None
    end: End | None = None
    name: str = ""


@dataclass
class Transaction:
    xid: int
    rows: list[RowMark]
    end: End


@dataclass
class Load:
    """``sequence`` is all that the connector has to say, in order."""

    transactions: list[Transaction] = field(default_factory=list)
    sequence: list[Sent] = field(default_factory=list)


def places(tables: int, partitions: int) -> list[Partition]:
    return [
        Partition(f"shop.public.t{table}", number)
        for table in range(tables)
        for number in range(partitions)
    ]


def partitions_of(table: str, of: Sequence[Partition]) -> tuple[Partition, ...] | None:
    return tuple(place for place in of if place.topic == f"shop.{table}") or None


def random_load(chance: random.Random, data: Sequence[Partition], count: int) -> Load:
    """Transactions that were open at the same time: their rows' LSNs overlap."""
    load, after = Load(), 0
    for place in data:
        load.sequence += [Sent(place, name=f"read {n}") for n in range(chance.randrange(3))]
    for number in range(1, count + 1):
        end_lsn, xid = number * 1000, chance.choice([number, count * 3 - number])
        while any(xid == other.xid for other in load.transactions):
            xid += count
        lsn = max(1, end_lsn - chance.randrange(1, 4000))
        load.sequence.append(Sent(TRANSACTIONS, name=f"BEGIN {xid}"))
        rows: list[RowMark] = []
        counts: Counter[str] = Counter()
        order = 0
        for _ in range(chance.choice([0, 1, 1, 2, 3, 8])):
            order += 1
            if chance.random() < 0.2:
                counts[LEFT_OUT] += 1
                continue
            place = chance.choice(data)
            lsn = min(lsn + chance.randrange(50), end_lsn - 1)
            table = place.topic.removeprefix("shop.")
            mark = RowMark(xid, lsn, order, after, table, number)
            rows.append(mark)
            counts[table] += 1
            load.sequence.append(Sent(place, mark))
            if chance.random() < 0.2:
                load.sequence.append(Sent(place, name=f"tombstone of {xid}/{order}"))
        end = End(xid, end_lsn, dict(counts), order, number)
        load.sequence.append(Sent(TRANSACTIONS, end=end))
        load.transactions.append(Transaction(xid, rows, end))
        after = end_lsn
    return load


def written(
    chance: random.Random, load: Load, data: Sequence[Partition], crashes: int
) -> dict[Partition, list[Sent]]:
    """What the partitions hold in the end. A run that dies has written a beginning of what it had
    to say into each partition; the next one begins at what was told to be written everywhere.
    """
    found: dict[Partition, list[Sent]] = {place: [] for place in (*data, TRANSACTIONS)}
    begin, everything = 0, len(load.sequence)
    for _ in range(crashes):
        upto = {place: chance.randint(begin, everything) for place in found}
        for at, sent in enumerate(load.sequence[begin:], begin):
            if at < upto[sent.place]:
                found[sent.place].append(sent)
        begin = chance.randint(begin, min(upto.values()))
    for sent in load.sequence[begin:]:
        found[sent.place].append(sent)
    return found
