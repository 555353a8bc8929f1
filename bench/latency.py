"""From commit times and deliveries to the latency of every transaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.storage.folder import FolderStorage
from penstock.pipeline.run.batch_committer import Delivered

# Postgres counts from 2000-01-01 UTC.
_POSTGRES_EPOCH = 946_684_800

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Commits:
    """Transactions in commit order: where each committed, when, and when the log held it.

    Times are seconds since 1970. The server and the bench share a machine, hence a clock. Where
    there is no log, ``logged_at`` is not a number.
    """

    lsn: Numbers
    at: Seconds
    logged_at: Seconds

    @classmethod
    def of_log(cls, log: ChangeLog) -> Self:
        """All that the log still has."""
        lsns, times, logged = [], [], []
        for name in log.list().segments:
            if not name.rows:
                continue
            rows = log.read(str(name)).rows
            lsn = rows.column("commit_lsn").to_numpy().astype(np.int64)
            lsns.append(lsn)
            times.append(rows.column("commit_ts").cast(pa.int64()).to_numpy() / 1e6)
            logged.append(np.full(len(lsn), _visible_since(log, str(name))))
        if not lsns:
            empty = np.empty(0)
            return cls(empty.astype(np.int64), empty, empty)
        lsn, first = np.unique(np.concatenate(lsns), return_index=True)
        return cls(lsn, np.concatenate(times)[first], np.concatenate(logged)[first])

    @classmethod
    def of_slot(cls, conn: psycopg.Connection[Any], slot: str, publication: str) -> Self:
        """All that the slot has yet to give; it is looked at and not moved."""
        rows = conn.execute(
            "SELECT substr(data, 2, 16) FROM pg_logical_slot_peek_binary_changes("
            " %s, NULL, NULL, 'proto_version', '1', 'publication_names', quote_ident(%s))"
            " WHERE get_byte(data, 0) = ascii('B')",
            [slot, publication],
        ).fetchall()
        return cls.of_begins(b"".join(bytes(row[0]) for row in rows))

    @classmethod
    def of_begins(cls, begins: bytes) -> Self:
        """From the first two fields of Begin messages, one after the other: LSN and time."""
        fields = np.frombuffer(begins, ">i8").reshape(-1, 2).astype(np.int64)
        at = fields[:, 1] / 1e6 + _POSTGRES_EPOCH
        return cls(fields[:, 0], at, np.full(len(at), np.nan))

    def between(self, after: int, before: int) -> Self:
        """Those that committed after one position and before another."""
        return self._where((self.lsn > after) & (self.lsn < before))

    def without_lead_in(self, seconds: float) -> Self:
        """Those that committed at least so long after the first."""
        return self._where(self.at >= self.at.min(initial=np.inf) + seconds)

    def _where(self, chosen: npt.NDArray[np.bool_]) -> Self:
        return type(self)(self.lsn[chosen], self.at[chosen], self.logged_at[chosen])


def delivery_times(commits: Numbers, delivered: Sequence[Delivered]) -> Seconds:
    """When each commit was first covered by a delivery; raises ValueError where one never was."""
    frontiers = np.array([d.frontier.commit_lsn for d in delivered], np.int64)
    if len(commits) and (not len(frontiers) or commits.max() > frontiers.max()):
        raise ValueError("a transaction was never delivered")
    times = np.array([d.at for d in delivered])
    return times[np.searchsorted(frontiers, commits)] if len(commits) else np.empty(0)


def stages(commits: Commits, delivered: Sequence[Delivered]) -> dict[str, float]:
    """Where the seconds of a change go, on average: until the log shows it, until the job of its
    batch begins, until that job has ended, until the destination has committed it.
    """
    frontiers = np.array([each.frontier.commit_lsn for each in delivered], np.int64)
    first = np.searchsorted(frontiers, commits.lsn)
    at = np.array([each.at for each in delivered])[first]
    began = at - np.array([each.job_began for each in delivered])[first]
    ended = at - np.array([each.job_ended for each in delivered])[first]
    moments = {"logged": commits.logged_at, "begun": began, "written": ended, "committed": at}
    earlier = [commits.at, commits.logged_at, began, ended]
    return {
        name: float(np.mean(moment - before))
        for (name, moment), before in zip(moments.items(), earlier, strict=True)
    }


def _visible_since(log: ChangeLog, segment: str) -> float:
    if not isinstance(log.segments, FolderStorage):
        # An object store tells it by the second only.
        return math.nan
    # A segment is synced under another name; the rename that shows it to readers sets its ctime.
    return Path(log.segments.full(segment)).stat().st_ctime
