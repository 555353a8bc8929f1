"""Subscriptions in the database: what the API and the command line do with them."""

from __future__ import annotations

import json
import secrets
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg.types.json import Json

from penstock.config.row_condition_tree import column_names
from penstock.config.table_patterns import parse_pattern, split_name
from penstock.destination.webhooks.database import Connection, Database
from penstock.destination.webhooks.subscription import Kept, OutboxPlace, WebhookSubscription
from penstock.model.errors import ConfigError, DestinationError
from penstock.transform.row_condition import RowCondition

MOST = 10_000
MOST_VIEWS = 100
"""How many different pairs of format and filter there may be: each is encoded for itself."""

_COLUMNS = (
    "id, wanted::text, secrets::text, state, reason, segment, row, generation, delivered,"
    " failing_since, last_error, created_at, ends, ends_why"
)


class NotFound(DestinationError):
    """There is no subscription of that id."""


class Subscriptions:
    """Those of one pipeline. Every change raises a number that the deliverer looks at."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, wanted: WebhookSubscription, entry: Mapping[str, Any]) -> str:
        """It begins with what is committed from now on. Raises ConfigError for unknown tables
        and columns.
        """
        made = f"sub_{secrets.token_hex(8)}"
        with self._database.transaction("adding a subscription") as conn:
            row = conn.execute(
                "SELECT segments, tables::text FROM penstock.webhook_pipeline"
                " WHERE pipeline = %s FOR UPDATE",
                [self._pipeline],
            ).fetchone()
            assert row is not None  # noqa: S101 (set_up made it)
            check_tables(wanted, json.loads(row[1]))
            self._check_counts(conn, wanted)
            conn.execute(
                "INSERT INTO penstock.webhook_subscription"
                " (pipeline, id, wanted, view, secrets, segment) VALUES (%s, %s, %s, %s, %s, %s)",
                [
                    *(self._pipeline, made, Json(wanted.model_dump()), wanted.view),
                    *(Json([entry]), row[0] + 1),
                ],
            )
            self._changed(conn)
        return made

    def all(self) -> list[Kept]:
        with self._database.transaction("reading subscriptions") as conn:
            rows = conn.execute(
                f"SELECT {_COLUMNS} FROM penstock.webhook_subscription"  # noqa: S608 (constants)
                " WHERE pipeline = %s ORDER BY created_at, id",
                [self._pipeline],
            ).fetchall()
            letters = dict(
                conn.execute(
                    "SELECT subscription, count(*) FROM penstock.webhook_dead_letter"
                    " WHERE pipeline = %s GROUP BY 1",
                    [self._pipeline],
                ).fetchall()
            )
            segments = conn.execute(
                "SELECT number, view, bytes FROM penstock.webhook_segment WHERE pipeline = %s",
                [self._pipeline],
            ).fetchall()
        backlog = _Backlog(segments)
        found = [_kept(row, letters) for row in rows]
        return [replace(kept, behind=backlog.behind(kept)) for kept in found]

    def active(self) -> list[Kept]:
        """Those to deliver to, without their backlog."""
        with self._database.transaction("reading subscriptions") as conn:
            rows = conn.execute(
                f"SELECT {_COLUMNS} FROM penstock.webhook_subscription"  # noqa: S608 (constants)
                " WHERE pipeline = %s AND state = 'active'",
                [self._pipeline],
            ).fetchall()
        return [_kept(row, {}) for row in rows]

    def one(self, subscription: str) -> Kept:
        for kept in self.all():
            if kept.id == subscription:
                return kept
        raise NotFound(
            f"pipeline {self._pipeline} has no subscription {subscription[:60]!r}",
            remedy="`penstock webhooks list FILE` shows those that there are",
        )

    def pause(self, subscription: str) -> Kept:
        """Raises DestinationError for one that is disabled: there is no place to go on at."""
        return self._set_state(subscription, "paused", "by a person")

    def resume(self, subscription: str, *, skip: bool = False) -> Kept:
        """It goes on where it stood. For one that is disabled nothing was kept: with ``skip`` it
        goes on with what is committed from now on, without it DestinationError is raised.
        """
        return self._set_state(subscription, "active", "", skip=skip)

    def rotate(self, subscription: str, entries: Sequence[Mapping[str, Any]]) -> Kept:
        with self._database.transaction("rotating a secret") as conn:
            self._changed(conn)
            conn.execute(
                "UPDATE penstock.webhook_subscription SET secrets = %s, generation = generation + 1"
                " WHERE pipeline = %s AND id = %s",
                [Json(list(entries)), self._pipeline, subscription],
            )
        return self.one(subscription)

    def remove(self, subscription: str) -> None:
        self.one(subscription)
        with self._database.transaction("removing a subscription") as conn:
            self._changed(conn)
            for table in (
                "webhook_subscription WHERE id",
                "webhook_dead_letter WHERE subscription",
            ):
                conn.execute(
                    f"DELETE FROM penstock.{table} = %s AND pipeline = %s".encode(),  # noqa: S608
                    [subscription, self._pipeline],
                )

    @property
    def _pipeline(self) -> str:
        return self._database.pipeline

    def _set_state(self, subscription: str, state: str, reason: str, *, skip: bool = False) -> Kept:
        self.one(subscription)
        with self._database.transaction("changing a subscription") as conn:
            # From here on the deliverer disables nobody.
            self._changed(conn)
            if skip:
                self._skip(conn, subscription)
            else:
                self._expect_kept(conn, subscription)
            conn.execute(
                "UPDATE penstock.webhook_subscription SET state = %s, reason = %s,"
                " failing_since = NULL, generation = generation + 1"
                " WHERE pipeline = %s AND id = %s",
                [state, reason, self._pipeline, subscription],
            )
        return self.one(subscription)

    def _expect_kept(self, conn: Connection, subscription: str) -> None:
        row = conn.execute(
            "SELECT state, reason FROM penstock.webhook_subscription"
            " WHERE pipeline = %s AND id = %s",
            [self._pipeline, subscription],
        ).fetchone()
        if row is not None and row[0] == "disabled":
            raise DestinationError(
                f"subscription {subscription} is disabled, and nothing is kept for it: {row[1]}",
                remedy="`penstock webhooks resume FILE ID --skip` goes on with what comes from now "
                "on; what came between, the receiver has to get otherwise",
            )

    def _skip(self, conn: Connection, subscription: str) -> None:
        conn.execute(
            "UPDATE penstock.webhook_subscription SET row = 0, ends = NULL, ends_why = '',"
            " segment = 1 + (SELECT segments"
            " FROM penstock.webhook_pipeline p WHERE p.pipeline = %(p)s)"
            " WHERE pipeline = %(p)s AND id = %(id)s AND state = 'disabled'",
            {"p": self._pipeline, "id": subscription},
        )

    def _changed(self, conn: Connection) -> None:
        """First of all in a transaction: everybody locks the pipeline's row before others."""
        conn.execute(
            "UPDATE penstock.webhook_pipeline SET subscriptions = subscriptions + 1"
            " WHERE pipeline = %s",
            [self._pipeline],
        )

    def _check_counts(self, conn: Connection, wanted: WebhookSubscription) -> None:
        """Under the lock of the pipeline's row."""
        rows = conn.execute(
            "SELECT view, count(*) FROM penstock.webhook_subscription WHERE pipeline = %s"
            " GROUP BY view",
            [self._pipeline],
        ).fetchall()
        views, count = {view for view, _ in rows}, sum(number for _, number in rows)
        if count >= MOST or len({*views, wanted.view}) > MOST_VIEWS:
            raise ConfigError(
                f"pipeline {self._pipeline} has {count:,} subscriptions with {len(views)} "
                f"different pairs of format and filter; at most {MOST:,} and {MOST_VIEWS} are "
                "possible",
                remedy="remove what nobody needs, or make another pipeline",
            )


def check_tables(wanted: WebhookSubscription, known: Mapping[str, Sequence[str]]) -> None:
    """Raises ConfigError for tables and columns that the pipeline does not know. Before its first
    run it knows none, and everything is taken.
    """
    if not known:
        return
    columns = {split_name(name): has for name, has in known.items()}
    for text in wanted.tables:
        pattern = parse_pattern(text)
        if not any(pattern.matches(*name) for name in columns):
            raise ConfigError(
                f"tables: {text} is no table that the pipeline follows",
                remedy="`penstock tables list FILE` shows which it follows",
            )
    for text, condition in wanted.filter.items():
        has = columns.get(split_name(text))
        if has is None:
            raise ConfigError(
                f"filter: {text} is no table that the pipeline follows",
                remedy="`penstock tables list FILE` shows which it follows",
            )
        for name in column_names(RowCondition.parse(condition).tree):
            if name not in has:
                raise ConfigError(
                    f"filter: table {text} has no column {name}",
                    remedy=f"it has {', '.join(has)}",
                )


def _kept(row: tuple[Any, ...], letters: Mapping[str, int]) -> Kept:
    name, wanted, entries, state, reason, segment, place, generation, *rest = row
    delivered, failing_since, last_error, created_at, ends, ends_why = rest
    return Kept(
        name,
        WebhookSubscription.model_validate_json(wanted),
        tuple(json.loads(entries)),
        state,
        reason,
        OutboxPlace(segment, place),
        generation,
        delivered,
        failing_since,
        last_error,
        created_at,
        letters.get(name, 0),
        ends,
        ends_why,
    )


class _Backlog:
    """How much of each view stands behind a segment."""

    def __init__(self, segments: Sequence[tuple[int, str, int]]) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._sums: dict[str, list[int]] = {}
        for number, view, size in sorted(segments):
            numbers, sums = self._numbers.setdefault(view, []), self._sums.setdefault(view, [0])
            numbers.append(number)
            sums.append(sums[-1] + size)

    def behind(self, kept: Kept) -> int:
        view = kept.wanted.view
        sums = self._sums.get(view, [0])
        numbers = self._numbers.get(view, [])
        end = len(numbers) if kept.ends is None else bisect_left(numbers, kept.ends)
        return max(0, sums[end] - sums[bisect_left(numbers, kept.place.segment)])
