"""A position of the source together with the rows as they were there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.config.connection_url import ConnectionUrl
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.slot_snapshot import slot_snapshot
from penstock.source.postgres.source_errors import source_errors
from penstock.verify.snapshot import Snapshot


@dataclass(frozen=True)
class SourcePoint:
    """``snapshot`` holds what was committed before ``lsn``, and nothing else."""

    lsn: int
    snapshot: Snapshot


@contextmanager
def source_point(url: ConnectionUrl, application: str, slot_wait: float) -> Iterator[SourcePoint]:
    """A point of now, kept open for the block.

    Only a logical slot knows such a pair; a temporary one is made for it and goes at once. Reading
    pg_current_wal_lsn() beside an ordinary snapshot would not do: a commit is written to the WAL
    before others see it.
    """

    def session() -> psycopg.Connection[Any]:
        return connect(url, application_name=application)

    with slot_snapshot(url, application=application, wait=slot_wait, check=lambda: None) as now:
        # It has to be taken over before the slot's connection does anything else.
        snapshot = Snapshot(session, source_errors, now.name)
        snapshot.open()
    try:
        yield SourcePoint(now.lsn, snapshot)
    finally:
        snapshot.close()
