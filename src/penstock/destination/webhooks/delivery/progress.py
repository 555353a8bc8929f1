"""The deliverer's side of the database: what is new, and how far subscriptions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.destination.webhooks.database import Connection, Database
from penstock.destination.webhooks.subscription import OutboxPlace
from penstock.model.errors import Fenced


class SegmentEntry(NamedTuple):
    """A segment in the outbox's index."""

    number: int
    view: str
    file: str
    bytes: int


@dataclass(frozen=True)
class Saved:
    """How one subscription stands; ``delivered`` since the last time."""

    id: str
    generation: int
    place: OutboxPlace
    delivered: int
    failing_since: datetime | None
    last_error: str
    ended: tuple[str, str] | None = None


class News(NamedTuple):
    """``version`` rises with every change of a subscription. ``driver`` is the number of the
    driver that has the outbox, 0 where there was none yet, and ``outbox`` its own name.
    """

    version: int
    driver: int
    segments: list[SegmentEntry]
    outbox: str


_SAVE = """
UPDATE penstock.webhook_subscription s
   SET segment = n.segment, row = n.row, delivered = s.delivered + n.delivered,
       failing_since = n.failing_since, last_error = n.last_error
  FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::text[])
       AS n (id, segment, row, delivered, failing_since, last_error)
 WHERE s.pipeline = %s AND s.id = n.id AND (s.segment, s.row) <= (n.segment, n.row)
"""
# Of two that are as far behind, both hold the outbox up.
_LAPSED = """
UPDATE penstock.webhook_subscription SET state = 'disabled', reason = %s,
       generation = generation + 1
 WHERE pipeline = %s AND state <> 'disabled' AND segment <= %s
       AND (ends IS NULL OR segment < ends)
RETURNING id
"""


class DeliveryProgress:
    """Of one deliverer. A later one's number fences it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._deliverer = 0

    def take_over(self) -> None:
        with self._database.transaction("taking over deliveries") as conn:
            row = conn.execute(
                "UPDATE penstock.webhook_pipeline SET deliverer = deliverer + 1"
                " WHERE pipeline = %s RETURNING deliverer",
                [self._pipeline],
            ).fetchone()
        assert row is not None  # noqa: S101 (set_up made it)
        self._deliverer = int(row[0])

    def news(self, after: int) -> News:
        """Segments behind ``after``, in order. Raises Fenced."""
        with self._database.transaction("looking for events") as conn:
            # Before the version: whoever ends before one of them is known to.
            rows = conn.execute(
                "SELECT number, view, file, bytes FROM penstock.webhook_segment"
                " WHERE pipeline = %s AND number > %s ORDER BY number",
                [self._pipeline, after],
            ).fetchall()
            version, driver, outbox = self._check(conn, locked=False)
        return News(version, driver, [SegmentEntry(*row) for row in rows], outbox)

    def states(self) -> dict[str, int]:
        """How many subscriptions are in each state."""
        with self._database.transaction("counting subscriptions") as conn:
            rows = conn.execute(
                "SELECT state, count(*) FROM penstock.webhook_subscription"
                " WHERE pipeline = %s GROUP BY state",
                [self._pipeline],
            ).fetchall()
        return dict(rows)

    def save(self, saved: Sequence[Saved]) -> None:
        """A subscription never goes back, and a person's later word counts. Raises Fenced."""
        if not saved:
            return
        with self._database.transaction("saving positions") as conn:
            self._check(conn)
            conn.execute(
                _SAVE,
                [
                    [each.id for each in saved],
                    [each.place.segment for each in saved],
                    [each.place.row for each in saved],
                    [each.delivered for each in saved],
                    [each.failing_since for each in saved],
                    [each.last_error[:500] for each in saved],
                    self._pipeline,
                ],
            )
            ended = [each for each in saved if each.ended is not None]
            for each in ended:
                state, reason = each.ended or ("", "")
                conn.execute(
                    "UPDATE penstock.webhook_subscription SET state = %s, reason = %s,"
                    " generation = generation + 1"
                    " WHERE pipeline = %s AND id = %s AND generation = %s",
                    [state, reason[:1000], self._pipeline, each.id, each.generation],
                )
            if ended:
                self._changed(conn)

    def keep_letter(self, subscription: str, message: str, table: str, why: str, body: str) -> None:
        with self._database.transaction("keeping a dead letter") as conn:
            self._check(conn)
            conn.execute(
                "INSERT INTO penstock.webhook_dead_letter"
                " (pipeline, subscription, message_id, source_table, why, body)"
                " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                [self._pipeline, subscription, message, table, why, body],
            )

    def retire(self, max_bytes: int, max_age: float) -> tuple[list[str], list[str]]:
        """Forget segments that nobody lacks, and disable who is too far behind: the files that may
        go now, and the subscriptions that were disabled. Raises Fenced.
        """
        with self._database.transaction("removing what was delivered") as conn:
            self._check(conn)
            lapsed = self._lapse(conn, max_bytes, max_age)
            rows = conn.execute(
                "DELETE FROM penstock.webhook_segment WHERE pipeline = %(p)s AND number <"
                " coalesce((SELECT min(segment) FROM penstock.webhook_subscription"
                " WHERE pipeline = %(p)s AND state <> 'disabled'"
                " AND (ends IS NULL OR segment < ends)), 9223372036854775807)"
                " RETURNING file",
                {"p": self._pipeline},
            ).fetchall()
        return [file for (file,) in rows], lapsed

    def _lapse(self, conn: Connection, max_bytes: int, max_age: float) -> list[str]:
        """Those that lack a segment which is too old, or behind which too much stands."""
        row = conn.execute(
            "SELECT max(number) FROM (SELECT number, created_at,"
            " sum(bytes) OVER (ORDER BY number DESC) AS behind"
            " FROM penstock.webhook_segment WHERE pipeline = %s) s"
            " WHERE behind > %s OR created_at < now() - make_interval(secs => %s)",
            [self._pipeline, max_bytes, max_age],
        ).fetchone()
        if row is None or row[0] is None:
            return []
        reason = (
            f"it was too far behind: destination.backlog keeps {max_bytes:,} bytes for "
            f"{max_age / 86400:g} days"
        )
        found = conn.execute(_LAPSED, [reason, self._pipeline, row[0]]).fetchall()
        if found:
            self._changed(conn)
        return [subscription for (subscription,) in found]

    @property
    def _pipeline(self) -> str:
        return self._database.pipeline

    def _check(self, conn: Connection, *, locked: bool = True) -> tuple[int, int, str]:
        """The number of changes of subscriptions, that of the driver, and the outbox's name. Raises
        Fenced; ``locked``: nobody can take over before the transaction ends.
        """
        row = conn.execute(
            b"SELECT deliverer, subscriptions, driver, outbox FROM penstock.webhook_pipeline"
            b" WHERE pipeline = %s" + (b" FOR NO KEY UPDATE" if locked else b""),
            [self._pipeline],
        ).fetchone()
        if row is None or row[0] != self._deliverer:
            raise Fenced(
                f"destination webhooks: another process delivers for pipeline {self._pipeline} now",
                remedy="stop one of both: `penstock run` delivers with destination.deliver: run, "
                "`penstock webhooks serve` with deliver: serve",
            )
        return int(row[1]), int(row[2]), str(row[3])

    def _changed(self, conn: Connection) -> None:
        conn.execute(
            "UPDATE penstock.webhook_pipeline SET subscriptions = subscriptions + 1"
            " WHERE pipeline = %s",
            [self._pipeline],
        )
