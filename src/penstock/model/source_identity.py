"""Which source positions are of, so that those of another one are never taken for them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.model.errors import IdentityChanged
from penstock.model.lsn import format_lsn, parse_lsn

START_ANEW = (
    "Point source.url at the server that it was. If that is gone, begin anew: `penstock destroy "
    "FILE`, then `penstock run FILE`, which copies the tables again; a destination that holds "
    "tables keeps their rows, so that source.copy needs existing_rows: truncate for that."
)


@dataclass(frozen=True)
class SourceIdentity:
    """``system_id`` and ``timeline`` are the server's; ``publication`` is the uuid of the
    pipeline's publication, empty where it has none.
    """

    system_id: str
    timeline: int
    database: str
    publication: str

    @property
    def tag(self) -> str:
        """Names it in few characters, for those who compare positions and know nothing else of it;
        empty where no publication makes it one. A promoted standby has the same.
        """
        if not self.publication:
            return ""
        whole = f"{self.system_id}/{self.publication}/{self.database}"
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def since(self, timeline: int) -> SourceIdentity:
        """The same source once it is in ``timeline``, if that is a later one."""
        return self if self.timeline >= timeline else replace(self, timeline=timeline)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceIdentity:
        return cls(value["system_id"], value["timeline"], value["database"], value["publication"])


@dataclass(frozen=True)
class SeenSource:
    """What a source says of itself. ``left`` says of each earlier timeline in its history at which
    LSN it was left for another.
    """

    identity: SourceIdentity
    flushed_lsn: int
    left: Mapping[int, int] = field(default_factory=dict)

    def expect(self, held: SourceIdentity | None, lsn: int, holder: str) -> None:
        """Raise IdentityChanged unless ``lsn``, at which ``holder`` stands in the source ``held``,
        is a point of this one's history. Older versions did not remember what ``held`` is.
        """
        if held is not None:
            self._expect_same(held, lsn, holder)
            if why := not_an_ancestor(held.timeline, self.identity.timeline, self.left, lsn):
                raise IdentityChanged(
                    f"{holder} stands at {format_lsn(lsn)}, and {why}.", remedy=START_ANEW
                )
        if lsn > self.flushed_lsn:
            raise IdentityChanged(
                f"The source went back (a restored image?): {holder} stands at {format_lsn(lsn)}, "
                f"and the source has written no further than {format_lsn(self.flushed_lsn)}.",
                remedy=START_ANEW,
            )

    def _expect_same(self, held: SourceIdentity, lsn: int, holder: str) -> None:
        now = self.identity
        for what, then, is_now in (
            ("the system identifier", held.system_id, now.system_id),
            ("the database", held.database, now.database),
            ("a publication with the uuid", held.publication, now.publication),
        ):
            if then != is_now:
                raise IdentityChanged(
                    f"{holder} stands at {format_lsn(lsn)} of another source, one with {what} "
                    f"{then}; this one has {is_now or 'none'}. Positions of the one mean nothing "
                    "in the other (a restored dump, an upgrade, another server behind the same "
                    "address, or two pipelines of one name).",
                    remedy=START_ANEW,
                )


def not_an_ancestor(then: int, now: int, left: Mapping[int, int], lsn: int) -> str | None:
    """Why ``lsn`` of timeline ``then`` is no point in the history of timeline ``now``, whose
    earlier timelines were ``left`` at these LSNs; None where it is one.
    """
    if then == now:
        return None
    if then not in left:
        return (
            f"its timeline {then} is not in the history of the source's timeline {now} (a restored "
            "backup, or a standby that was promoted before)"
        )
    if left[then] < lsn:
        return (
            f"the source left timeline {then} at {format_lsn(left[then])} for timeline {now}: what "
            "lies between was lost when a standby was promoted or a backup restored"
        )
    return None


def parse_history(content: str) -> dict[int, int]:
    """A timeline's history file: which timelines came before it, and where each was left."""
    left = {}
    for line in content.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0].isdigit():
            left[int(fields[0])] = parse_lsn(fields[1])
    return left
