"""One table of a pipeline as a JSON object, with its state, copy and wish."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from penstock.model.lsn import format_lsn
from penstock.model.table_state import state_to_json

if TYPE_CHECKING:
    from penstock.store import CopyProgress, Store


def table_to_json(store: Store, name: str, table: int) -> dict[str, Any]:
    """``name`` is how the table is shown, ``table`` its oid."""
    state, since = store.get_table_state(table), store.get_state_since(table)
    copy = store.get_copy(table)
    return {
        "table": name,
        "oid": table,
        "state": None if state is None else state_to_json(state),
        "since": None if since is None else since.astimezone(UTC).isoformat(),
        "notes": list(store.get_notes(table)),
        "copy": None if copy is None else _copy_to_json(copy),
        "wish": store.get_wish(table),
    }


def _copy_to_json(copy: CopyProgress) -> dict[str, Any]:
    return {
        "chunks": len(copy.plan.chunks),
        "chunks_done": len(copy.done),
        "rows_done": copy.rows_done,
        "bytes": copy.plan.bytes,
        "bytes_done": copy.planned_bytes_done,
        "first_lsn": format_lsn(copy.first_lsn),
        "last_lsn": format_lsn(copy.last_lsn),
        "snapshots": copy.snapshots,
        "started_at": copy.started_at.astimezone(UTC).isoformat(),
    }
