"""Commits that move the position: what is merged and how far that brings the pipeline are one
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import psycopg

from penstock.destination.postgres.merging.dead_letters import forget_staged
from penstock.destination.postgres.merging.table_merge import Odd, is_odd
from penstock.destination.postgres.own_tables import ensure_own_tables, has_own_tables
from penstock.destination.postgres.progress import (
    DRIVER,
    Progress,
    advance,
    read_progress,
    take_back,
    take_over,
)
from penstock.destination.postgres.sessions.driver_session import DriverSession
from penstock.destination.postgres.sessions.session import (
    Connection,
    as_destination_error,
    destination_errors,
)
from penstock.failpoints import failpoint
from penstock.model.errors import DestinationUnavailable
from penstock.model.watermarks import Watermarks

Way = Callable[[Connection], None]
"""A way to commit; it ends with the transaction."""


class DriverCommits:
    """Of one driver, on its session. Belongs to the thread that commits."""

    def __init__(self, session: DriverSession, pipeline: str) -> None:
        self._session = session
        self._pipeline = pipeline
        self._held = Progress(0, None)
        self._is_in_doubt = False
        """Whether a commit failed since the destination was asked: its connection may be lost, and
        the server at it still.
        """

    @property
    def epoch(self) -> int:
        """Which driver this is."""
        return self._held.epoch

    def take_over(self, conn: Connection) -> None:
        """From now on this driver commits, and no one before it."""
        epoch = take_over(conn, self._pipeline)
        forget_staged(conn, self._pipeline)
        self._held = replace(self.read(conn), epoch=epoch)

    def read(self, conn: Connection, *, settled: bool = False) -> Progress:
        """Where the destination stands; ``settled``: behind a commit that is under way."""
        if not has_own_tables(conn):
            return Progress(0, None)
        return read_progress(conn, self._pipeline, settled=settled) or Progress(0, None)

    def resume(self, conn: Connection) -> tuple[Progress, bool]:
        """Where the destination stands, and whether that is before where this driver left it."""
        found = self.read(conn, settled=self._is_in_doubt)
        if found.epoch < self._held.epoch:
            # Epochs only rise: this server has lost what came after, as far as our own.
            ensure_own_tables(conn)
            take_back(conn, self._pipeline, self._held.epoch)
            found = self.read(conn)
        was_set_back = False
        if found.epoch == self._held.epoch:
            was_set_back = found.is_before(self._held)
            # A commit whose answer was lost has happened, or has not: this tells.
            self._held, self._is_in_doubt = found, False
        return found, was_set_back

    def next(self, watermarks: Watermarks) -> Progress:
        """Where this driver will have brought the pipeline."""
        return Progress(self._held.epoch, watermarks)

    def run(self, progress: Progress, quick: Way, thorough: Way, tidy: Way, doing: str) -> None:
        """By the quick way, and if need be again by the thorough one."""
        try:
            with self._session() as conn:
                self._is_in_doubt = True
                try:
                    quick(conn)
                except (Odd, psycopg.Error) as error:
                    if not is_odd(error):
                        raise
                    thorough(conn)
                self._held, self._is_in_doubt = progress, False
                # What is committed stays committed: a server that is lost here is lost to the next
                # batch.
                with suppress(DestinationUnavailable), destination_errors("tidying up"):
                    tidy(conn)
        except psycopg.Error as error:
            raise as_destination_error(error, doing) from error

    @contextmanager
    def transaction(self, conn: Connection, progress: Progress) -> Iterator[None]:
        """What is done in it is committed with the position, which is moved first."""
        with conn.transaction():
            self.advance(conn, progress)
            yield
            failpoint("postgres.merged")
        failpoint("postgres.committed")

    def advance(self, conn: Connection, progress: Progress, session: str = DRIVER) -> None:
        """Move the position: it fences, and holds a second driver up until the transaction ends."""
        assert progress.watermarks is not None  # noqa: S101 (a commit always has some)
        advance(conn, self._pipeline, self._held, progress.watermarks, session)
