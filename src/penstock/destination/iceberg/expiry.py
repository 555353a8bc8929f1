"""Forgets old snapshots of a table, and removes files that nothing names any more."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from penstock.destination.iceberg.snapshots import expire, remove_file


def expire_older(table: Table, seconds: float) -> None:
    """Forget snapshots that are so old, but for the last one and those that have a name.

    Files are removed after the commit: what a crash leaves of them is nothing to readers.
    """
    limit = (time.time() - seconds) * 1000
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [
        snapshot
        for snapshot in table.metadata.snapshots
        if snapshot.timestamp_ms < limit and snapshot.snapshot_id not in named
    ]
    if not old:
        return
    gone = {snapshot.snapshot_id for snapshot in old}
    kept = [each for each in table.metadata.snapshots if each.snapshot_id not in gone]
    wanted, unwanted = _files(table, kept), _files(table, old)
    expire(table, sorted(gone))
    for path in unwanted - wanted:
        remove_file(table, path)


def _files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """All that snapshots need to be read."""
    found: set[str] = set()
    seen: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io)
                found.update(entry.data_file.file_path for entry in entries)
    return found | seen
