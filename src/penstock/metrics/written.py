"""What tasks on executors did. It travels to the driver beside their receipts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.destination.contract import ChunkReceipt, Receipt

Pair = tuple[str, str]


@dataclass
class Written:
    """Counts, of one task or of many together: ``+`` does not mind in which order.

    ``changes`` are those that were given to the destination, by table and operation; ``filtered``
    those that the filter kept out, by table and reason. ``messages`` and ``message_bytes`` are what
    became of them for a queue, ``resent`` those of them that it did not take at first, and
    ``unroutable`` those that it had nobody to give to.
    ``seconds`` are by stage (see metered.py). ``retries`` are attempts of tasks that failed.
    ``commit_micros`` is when the last change was committed at the source. ``truncates`` are the
    tables, by oid, that were emptied there, and the transactions that did it.
    """

    changes: Counter[Pair] = field(default_factory=Counter)
    filtered: Counter[Pair] = field(default_factory=Counter)
    messages: int = 0
    message_bytes: int = 0
    resent: int = 0
    unroutable: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    retries: int = 0
    commit_micros: int = 0
    truncates: frozenset[tuple[int, int]] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether there was no change, not even one that the filter kept out."""
        return not self.changes and not self.filtered

    def __add__(self, other: Written) -> Written:
        stages = [*self.seconds, *(stage for stage in other.seconds if stage not in self.seconds)]
        return Written(
            self.changes + other.changes,
            self.filtered + other.filtered,
            self.messages + other.messages,
            self.message_bytes + other.message_bytes,
            self.resent + other.resent,
            self.unroutable + other.unroutable,
            {s: self.seconds.get(s, 0.0) + other.seconds.get(s, 0.0) for s in stages},
            self.retries + other.retries,
            max(self.commit_micros, other.commit_micros),
            self.truncates | other.truncates,
        )

    def to_json(self) -> str:
        return json.dumps(
            {
                "changes": [[*pair, count] for pair, count in self.changes.items()],
                "filtered": [[*pair, count] for pair, count in self.filtered.items()],
                "messages": self.messages,
                "message_bytes": self.message_bytes,
                "resent": self.resent,
                "unroutable": self.unroutable,
                "seconds": self.seconds,
                "retries": self.retries,
                "commit_micros": self.commit_micros,
                "truncates": sorted(self.truncates),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Written:
        value = json.loads(text)
        for name in ("changes", "filtered"):
            value[name] = Counter({(table, kind): count for table, kind, count in value[name]})
        value["truncates"] = frozenset(map(tuple, value["truncates"]))
        return cls(**value)


def together(parts: Iterable[Written]) -> Written:
    """The sum of all."""
    return sum(parts, start=Written())


@dataclass(frozen=True)
class JobResult:
    """What the tasks of a Spark job left: receipts in position order, and what they did.

    ``began`` and ``ended`` are the driver's monotonic clock.
    """

    receipts: list[Receipt] = field(default_factory=list)
    written: Written = field(default_factory=Written)
    began: float = 0.0
    ended: float = 0.0


def in_turn(jobs: Sequence[JobResult]) -> JobResult:
    """Jobs that ran one after another, as one."""
    if not jobs:
        return JobResult()
    return JobResult(
        [receipt for job in jobs for receipt in job.receipts],
        together(job.written for job in jobs),
        jobs[0].began,
        jobs[-1].ended,
    )


@dataclass(frozen=True)
class CopyResult:
    """What a task left that copied chunks: their receipts, in the chunks' order."""

    receipts: list[ChunkReceipt]
    written: Written = field(default_factory=Written)
