"""How a pipeline stands in its source: what exists there, and how far behind its slot is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from penstock.model.lsn import format_lsn
from penstock.source.contract import Subscription
from penstock.source.postgres.subscription.slot import SlotState, current_wal_lsn, slot_state
from penstock.source.postgres.subscription.subscription import find_subscription

State = Literal["not initialised", "stopped", "streaming", "slot missing", "slot lost"]


@dataclass(frozen=True)
class SourceStatus:
    """A moment of the source side. The byte counts are None without a slot position."""

    subscription: Subscription | None
    slot: SlotState | None
    current_wal: int

    @property
    def state(self) -> State:
        if self.subscription is None:
            return "not initialised"
        if self.slot is None:
            return "slot missing"
        if self.slot.is_lost:
            return "slot lost"
        return "streaming" if self.slot.active else "stopped"

    @property
    def is_broken(self) -> bool:
        return self.state in ("slot missing", "slot lost")

    @property
    def retained_bytes(self) -> int | None:
        """WAL that the source keeps for the slot."""
        return self._behind(None if self.slot is None else self.slot.restart_lsn)

    @property
    def lag_bytes(self) -> int | None:
        """WAL written since the position that was confirmed to the slot."""
        return self._behind(None if self.slot is None else self.slot.confirmed_flush)

    def _behind(self, lsn: int | None) -> int | None:
        return None if lsn is None else max(0, self.current_wal - lsn)

    def to_json(self) -> dict[str, Any]:
        subscription, slot = self.subscription, self.slot
        return {
            "state": self.state,
            "publication": subscription and subscription.publication,
            "start_lsn": subscription and format_lsn(subscription.start_lsn),
            "tables": subscription and [str(table) for table in subscription.tables],
            "insert_only": subscription and [str(table) for table in subscription.insert_only],
            "slot": None
            if slot is None
            else {
                "name": slot.name,
                "active": slot.active,
                "active_pid": slot.active_pid,
                "wal_status": slot.wal_status,
                "safe_wal_size": slot.safe_wal_size,
                "invalidation_reason": slot.invalidation_reason,
                "confirmed_flush_lsn": _text(slot.confirmed_flush),
                "restart_lsn": _text(slot.restart_lsn),
            },
            "current_wal_lsn": format_lsn(self.current_wal),
            "retained_bytes": self.retained_bytes,
            "lag_bytes": self.lag_bytes,
        }


def read_source_status(conn: psycopg.Connection[Any], name: str) -> SourceStatus:
    """The source side of the pipeline called ``name``."""
    subscription = find_subscription(conn, name)
    slot = None if subscription is None else slot_state(conn, subscription.slot)
    return SourceStatus(subscription, slot, current_wal_lsn(conn))


def _text(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)
