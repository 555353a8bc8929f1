"""Somebody who reads the demo's destination all the time, and must never see half a transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql

from penstock.demo.shop_reviews import REVIEWS
from penstock.demo.shop_schema import SUMS, TABLES
from penstock.destination.postgres.sessions.session import DESTINATION, as_destination_error
from penstock.model.lsn import NOTHING, Frontier, parse_lsn
from penstock.source.postgres.connect import connect

_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_KEPT = 5
_EXPECTED = (*TABLES, REVIEWS)


@dataclass(frozen=True)
class TargetLook:
    """What one statement saw, and so what was there at one moment.

    ``rows`` counts the rows of each table that there is, ``written`` how many were inserted,
    updated and deleted since the table was made (by the server's statistics, which follow within a
    second or two).
    """

    rows: Mapping[str, int]
    written: Mapping[str, int]
    frontier: Frontier


@dataclass(frozen=True)
class Invariant:
    """How often the sums were looked at since there were any, how often these had changed, and,
    in a few sentences, when they were not equal.
    """

    looks: int = 0
    changes: int = 0
    broken: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether there was something to see, and it was right every time."""
        return self.looks > 0 and not self.broken

    def __str__(self) -> str:
        if self.broken:
            return f"BROKEN: {self.broken[0]}"
        if not self.looks:
            return "nothing to look at yet"
        return f"never broken in {self.looks:,} looks at {self.changes:,} different sums"


class TargetReader:
    """Looks at the destination from ``start`` until ``stop``, in a thread of its own.

    The sums count from ``judge`` on: tables that are being copied are not at one position yet.
    """

    def __init__(self, url: str, pipeline: str) -> None:
        self._url = url
        self._pipeline = pipeline
        self._tables: Sequence[str] = ()
        self._judging = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="target reader", daemon=True)
        self._failure: Exception | None = None
        self._sums: tuple[Decimal, ...] = ()
        self.latest: TargetLook | None = None
        """None until the pipeline has made its tables."""
        self.invariant = Invariant()

    def start(self) -> None:
        self._thread.start()

    def judge(self) -> None:
        self._judging.set()

    def check(self) -> None:
        """Raise DestinationError if it can read no more."""
        if isinstance(self._failure, psycopg.Error):
            raise as_destination_error(self._failure, "reading the invariant")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            name = "penstock demo reader"
            with connect(self._url, application_name=name, party=DESTINATION) as conn:
                pause = 0.0
                while not self._stop.wait(pause):
                    began = time.monotonic()
                    self._look(conn)
                    # Tables grow with the time that the demo runs; their reader must leave the
                    # processor to the pipeline all the same.
                    took = time.monotonic() - began
                    pause = min(max(_PAUSE_SECONDS, 4 * took), _LONGEST_PAUSE_SECONDS)
        except Exception as error:
            self._failure = error

    def _look(self, conn: psycopg.Connection[Any]) -> None:
        # Asked before the sums are: what begins later is not judged too early.
        judging = self._judging.is_set()
        if len(self._tables) < len(_EXPECTED):
            self._tables = _existing(conn)
        if not set(TABLES) <= set(self._tables):
            return
        try:
            row = conn.execute(_statement(self._tables), [self._pipeline]).fetchone()
        except psycopg.errors.UndefinedTable:
            return
        if row is None:
            return
        commit_lsn, end_lsn, rows, written, *sums = row
        frontier = NOTHING
        if commit_lsn is not None:
            frontier = Frontier(parse_lsn(commit_lsn), parse_lsn(end_lsn))
        if judging:
            self._judge(tuple(sums), frontier)
        self.latest = TargetLook(
            dict(zip(self._tables, rows, strict=True)),
            dict(zip(self._tables, written, strict=True)),
            frontier,
        )

    def _judge(self, sums: tuple[Decimal, ...], frontier: Frontier) -> None:
        before = self.invariant
        if not before.looks and not any(sums):
            return
        looks, broken = before.looks + 1, before.broken
        if len(set(sums)) > 1 and len(broken) < _KEPT:
            told = ", ".join(f"{name} {value}" for name, value in zip(SUMS, sums, strict=True))
            broken = (*broken, f"at {frontier} the sums were {told} (look {looks})")
        changes = before.changes + (sums != self._sums)
        self._sums = sums
        self.invariant = Invariant(looks, changes, broken)


def _existing(conn: psycopg.Connection[Any]) -> list[str]:
    found = conn.execute(
        "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS expected (name, place)"
        " WHERE to_regclass('public.' || name) IS NOT NULL ORDER BY place",
        [list(_EXPECTED)],
    )
    return [name for (name,) in found]


def _statement(names: Sequence[str]) -> sql.Composed:
    """One statement, since each sees one snapshot."""
    tables = [sql.Identifier("public", table) for table in names]
    counts = [sql.SQL("(SELECT count(*) FROM {})").format(table) for table in tables]
    written = [
        sql.SQL(
            "pg_stat_get_tuples_inserted({0}) + pg_stat_get_tuples_updated({0})"
            " + pg_stat_get_tuples_deleted({0})"
        ).format(sql.SQL("{}::regclass").format(sql.Literal(f"public.{table}")))
        for table in names
    ]
    comma = sql.SQL(", ")
    return sql.SQL(
        "SELECT commit_lsn::text, end_lsn::text, ARRAY[{}], ARRAY[{}], {}"
        " FROM penstock.progress WHERE pipeline = %s"
    ).format(
        comma.join(counts),
        comma.join(written),
        comma.join(sql.SQL("({})").format(sql.SQL(text)) for text in SUMS.values()),
    )
