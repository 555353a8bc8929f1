"""A destination that says less than it has said before: it failed over and lost its last commits,
or was restored from a backup.
"""

from __future__ import annotations

import logging

from penstock.changelog import chain
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from penstock.model.table_state import Errored, Init, Ready, SyncDone
from penstock.model.watermarks import Watermarks
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry
from penstock.store import Store

_log = logging.getLogger(__name__)


def go_on_from(
    at: Frontier,
    said: Frontier,
    held: Watermarks | None,
    context: RunContext,
    tables: TableRegistry,
) -> None:
    """Let the pipeline go on from ``at``, where the destination stands by ``held``, although it
    ``said`` that it was further. Tables whose copied rows may be lost with that are copied anew.

    Raises DestinationError where the log does not have what lies between any more.
    """
    what = (
        f"the destination went back: it held everything up to {said}, and now it holds {at} (a "
        "failover that lost commits, a restored backup, or another destination than before)"
    )
    if chain.lacks(context.log.list().segments, at):
        raise DestinationError(
            f"{what}; the change log no longer has what lies between",
            remedy="Bring the destination back to where it was, if that server or a newer backup "
            "is there. Else begin anew: `penstock destroy FILE`, then `penstock run FILE` with "
            "existing_rows: truncate in source.copy. change_log.grace says how long the log keeps "
            "what was delivered.",
        )
    lost = _copies_lost(context.store, held)
    for oid, is_resting in lost.items():
        if is_resting:
            tables.copy_anew(oid)
        else:
            tables.copy_soon(oid, "the destination lost rows of its copy")
    tables.to_prepare(context.store.get_table_states().keys())
    names = ", ".join(map(tables.qualified_name, lost))
    _log.warning(
        "%s; going on from there%s",
        what,
        f", and copying anew: {names}" if names else "",
        extra={"event": "destination_went_back"},
    )
    context.metrics.set_back()


def _copies_lost(store: Store, held: Watermarks | None) -> dict[int, bool]:
    """Tables whose copied rows had not all come when the destination stood at ``held``, and whether
    nothing is under way with them now.
    """
    states, copies = store.get_table_states(), store.get_copies()
    return {
        oid: isinstance(states[oid], Ready | SyncDone | Errored)
        for oid, copy in copies.items()
        if not isinstance(states.get(oid, Init()), Init)
        and (held is None or not held.has_joined(oid, copy.last_lsn))
    }
