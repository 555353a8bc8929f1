"""A destination that says less than it has said before: it failed over and lost its last commits,
or was restored from a backup.
"""

from __future__ import annotations

import logging

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.pipeline.tables.registry import TableRegistry

_log = logging.getLogger(__name__)


def go_on_from(
    at: Frontier, said: Frontier, held: Watermarks | None, log: ChangeLog, tables: TableRegistry
) -> None:
    """Let the pipeline go on from ``at``, where the destination stands by ``held``, although it
    ``said`` that it was further. Tables whose copied rows may be lost with that are copied anew.

    Raises DestinationError where the log does not have what lies between any more.
    """
    what = (
        f"the destination went back: it held everything up to {said}, and now it holds {at} (a "
        "failover that lost commits, a restored backup, or another destination than before)"
    )
    if chain.lacks(log.list().segments, at):
        raise DestinationError(
            f"{what}; the change log no longer has what lies between",
            remedy="Bring the destination back to where it was, if that server or a newer backup "
            "is there. Else begin anew: `penstock destroy FILE`, then `penstock run FILE` with "
            "existing_rows: truncate in source.copy. change_log.grace says how long the log keeps "
            "what was delivered.",
        )
    lost = tables.lose_copies(held)
    _log.warning(
        "%s; going on from there%s",
        what,
        f", and copying anew: {', '.join(map(tables.qualified_name, lost))}" if lost else "",
        extra={"event": "destination_went_back"},
    )
