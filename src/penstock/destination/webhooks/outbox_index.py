"""The driver's side of the outbox's index: segments are committed with the position."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.types.json import Json

from penstock.destination.webhooks.database import Connection, Database
from penstock.model.errors import Fenced
from penstock.model.watermarks import Watermarks


@dataclass(frozen=True)
class OutboxFile:
    """Events that a task has written: those of one view, in position order."""

    view: str
    file: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class OutboxWritten:
    """What one task has written."""

    files: list[OutboxFile]
    unfit: dict[str, str]
    """Why the conditions of a view do not suit a table, from where on it alone gets nothing."""

    def to_json(self) -> dict[str, Any]:
        return {"files": [asdict(file) for file in self.files], "unfit": self.unfit}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OutboxWritten:
        return cls([OutboxFile(**entry) for entry in value["files"]], value["unfit"])


class OutboxIndex:
    """What one driver commits. A later driver's number fences it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._driver = 0

    def take_over(self, above: int, announce: Callable[[int, str], None]) -> tuple[int, str]:
        """The number of this driver, greater than ``above``, and the outbox's own name, which no
        other has; no earlier driver can commit from here on. ``announce`` is called with both
        before anybody else can see them.
        """
        with self._database.transaction("taking over the outbox") as conn:
            row = conn.execute(
                "UPDATE penstock.webhook_pipeline SET driver = greatest(driver, %s) + 1,"
                " outbox = CASE outbox WHEN '' THEN %s ELSE outbox END"
                " WHERE pipeline = %s RETURNING driver, outbox",
                [above, uuid.uuid4().hex, self._database.pipeline],
            ).fetchone()
            assert row is not None  # noqa: S101 (set_up made it)
            driver, outbox = int(row[0]), str(row[1])
            announce(driver, outbox)
        self._driver = driver
        return driver, outbox

    def outbox(self) -> str:
        """Its own name; nothing where no driver took over yet. The tables are there."""
        with self._database.transaction("reading the outbox's name") as conn:
            row = conn.execute(
                "SELECT outbox FROM penstock.webhook_pipeline WHERE pipeline = %s",
                [self._database.pipeline],
            ).fetchone()
        return "" if row is None else str(row[0])

    def watermarks(self) -> Watermarks | None:
        if not self._database.has_tables():
            return None
        with self._database.transaction("reading the position") as conn:
            row = conn.execute(
                "SELECT watermarks::text FROM penstock.webhook_pipeline WHERE pipeline = %s",
                [self._database.pipeline],
            ).fetchone()
        return None if row is None or row[0] is None else Watermarks.from_json(json.loads(row[0]))

    def files(self) -> set[str]:
        """The names of all that was committed and is still there."""
        with self._database.transaction("reading the outbox's index") as conn:
            rows = conn.execute(
                "SELECT file FROM penstock.webhook_segment WHERE pipeline = %s",
                [self._database.pipeline],
            ).fetchall()
        return {file for (file,) in rows}

    def commit(self, written: Sequence[OutboxWritten], watermarks: Watermarks) -> list[str]:
        """Add segments, and move the position, in one step; which subscriptions end, and why.
        Raises Fenced.
        """
        with self._database.transaction("committing to the outbox") as conn:
            ended = self._add(conn, written)
            kept = Watermarks(watermarks.frontier, source=watermarks.source)
            conn.execute(
                "UPDATE penstock.webhook_pipeline SET watermarks = %s WHERE pipeline = %s",
                [Json(kept.to_json()), self._database.pipeline],
            )
        return ended

    def commit_chunk(self, table: str, chunk: str, written: OutboxWritten) -> list[str]:
        """Add the segments of a chunk, unless it is there already; which subscriptions end, and
        why. Raises Fenced.
        """
        with self._database.transaction("committing a chunk to the outbox") as conn:
            self._check_driver(conn)
            added = conn.execute(
                "INSERT INTO penstock.webhook_chunk (pipeline, source_table, chunk)"
                " VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                [self._database.pipeline, table, chunk],
            )
            return self._add(conn, [written]) if added.rowcount else []

    def forget_chunks(self, table: str) -> None:
        with self._database.transaction("forgetting copied chunks") as conn:
            self._check_driver(conn)
            conn.execute(
                "DELETE FROM penstock.webhook_chunk WHERE pipeline = %s AND source_table = %s",
                [self._database.pipeline, table],
            )

    def know_tables(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Remember names of tables and columns: subscriptions are checked against them."""
        with self._database.transaction("recording tables") as conn:
            self._check_driver(conn)
            conn.execute(
                "UPDATE penstock.webhook_pipeline SET tables = tables || %s::jsonb"
                " WHERE pipeline = %s",
                [Json(tables), self._database.pipeline],
            )

    def _check_driver(self, conn: Connection) -> None:
        row = conn.execute(
            "SELECT driver FROM penstock.webhook_pipeline WHERE pipeline = %s FOR UPDATE",
            [self._database.pipeline],
        ).fetchone()
        if row is None or row[0] != self._driver:
            raise Fenced(
                f"destination webhooks: another driver of pipeline {self._database.pipeline} has "
                "taken over the outbox",
                remedy="stop this one, or the other; what this one did not commit is left to it",
            )

    def _add(self, conn: Connection, written: Sequence[OutboxWritten]) -> list[str]:
        """Number and add segments, under the lock of the pipeline's row. Who waits for a view that
        is unfit gets what was encoded before that, and ends there.
        """
        self._check_driver(conn)
        files: list[OutboxFile] = []
        unfit: dict[str, str] = {}
        for each in written:
            files += (file for file in each.files if file.view not in unfit)
            unfit = {**each.unfit, **unfit}
        if not files and not unfit:
            return []
        pipeline = self._database.pipeline
        row = conn.execute(
            "UPDATE penstock.webhook_pipeline SET segments = segments + %s WHERE pipeline = %s"
            " RETURNING segments",
            [len(files), pipeline],
        ).fetchone()
        assert row is not None  # noqa: S101 (locked above)
        last = int(row[0])
        conn.cursor().executemany(
            "INSERT INTO penstock.webhook_segment (pipeline, number, view, file, rows, bytes)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            [
                (pipeline, number, file.view, file.file, file.rows, file.bytes)
                for number, file in enumerate(files, start=last - len(files) + 1)
            ],
        )
        return [
            said
            for view, why in unfit.items()
            for said in self._end(
                conn, view, last + 1, f"its filter does not suit the tables: {why}"
            )
        ]

    def _end(self, conn: Connection, view: str, segment: int, why: str) -> list[str]:
        """Let who waits for a view get nothing from a segment on."""
        conn.execute(
            "UPDATE penstock.webhook_pipeline SET subscriptions = subscriptions + 1"
            " WHERE pipeline = %s",
            [self._database.pipeline],
        )
        rows = conn.execute(
            "UPDATE penstock.webhook_subscription SET ends = %s, ends_why = %s,"
            " generation = generation + 1 WHERE pipeline = %s AND view = %s AND ends IS NULL"
            " AND state <> 'disabled' RETURNING id",
            [segment, why, self._database.pipeline, view],
        ).fetchall()
        return [f"{subscription}: {why}" for (subscription,) in rows]
