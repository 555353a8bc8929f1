"""Where a destination stands, by its own word or by what was written down of it."""

from __future__ import annotations

from penstock.changelog.changelog import ChangeLog
from penstock.destination.contract import Destination
from penstock.model.source_identity import SeenSource
from penstock.model.watermarks import Watermarks


def held_by(destination: Destination, log: ChangeLog) -> Watermarks | None:
    """Where it stands or, if it does not remember, where it was last seen."""
    held = destination.committed()
    if held is None and not destination.capabilities.remembers:
        recorded = log.reader(destination.pipeline)
        held = Watermarks(recorded.frontier, source=recorded.source) if recorded else None
    return held


def expect_source(seen: SeenSource, held: Watermarks, log: ChangeLog) -> None:
    """Raise IdentityChanged unless what destination and log hold is a part of this source's
    history. That the log is of the same server is for capture to say; but what is in it must not
    be delivered as a part of a later timeline that never had it.
    """
    seen.expect(held.source, held.frontier.end_lsn, "The destination")
    if held.source is None or held.source.timeline == seen.identity.timeline:
        return
    if (end := log.list().frontier) is not None:
        # Capture may know of a promotion before us, and have gone on.
        seen.expect(
            held.source.since(log.timeline()), end.end_lsn, f"The change log in {log.root.path}"
        )
