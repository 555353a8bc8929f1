"""Which views of the changes somebody waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config.filter_config import Operation
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.subscription import EventFormatName, WebhookSubscription


@dataclass(frozen=True)
class Asked:
    """What the subscriptions of one view ask for together."""

    format: EventFormatName
    rows: Mapping[str, str]
    tables: tuple[str, ...]
    operations: tuple[Operation, ...]


class AskedViews:
    """Those of subscriptions that are active or paused, and whose filters suit the tables; read
    anew when one has changed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version = -1
        self._views: dict[str, Asked] = {}

    def now(self) -> Mapping[str, Asked]:
        """By the view's name. One small query, unless something has changed."""
        with self._database.transaction("reading subscriptions") as conn:
            row = conn.execute(
                "SELECT subscriptions FROM penstock.webhook_pipeline WHERE pipeline = %s",
                [self._database.pipeline],
            ).fetchone()
            version = row[0] if row else 0
            if version == self._version:
                return self._views
            found = conn.execute(
                "SELECT wanted::text FROM penstock.webhook_subscription"
                " WHERE pipeline = %s AND state <> 'disabled' AND ends IS NULL",
                [self._database.pipeline],
            ).fetchall()
        self._views = _views([WebhookSubscription.model_validate_json(text) for (text,) in found])
        self._version = version
        return self._views


def _views(wanted: list[WebhookSubscription]) -> dict[str, Asked]:
    views: dict[str, list[WebhookSubscription]] = {}
    for each in wanted:
        views.setdefault(each.view, []).append(each)
    return {
        name: Asked(
            some[0].format,
            some[0].filter,
            tuple(sorted({pattern for each in some for pattern in each.tables})),
            tuple(sorted({operation for each in some for operation in each.operations})),
        )
        for name, some in views.items()
    }
