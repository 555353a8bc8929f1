"""A `webhooks` destination at work, with subscriptions at a receiver, for tests without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.destination import WebhooksDestination
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.signing import new_secret
from penstock.destination.webhooks.subscription import Kept, WebhookSubscription
from penstock.destination.webhooks.subscriptions import Subscriptions
from penstock.metrics.registry import Registry
from penstock.testing.change_builder import ChangeBuilder, Column, Table, table
from penstock.testing.contract.deliveries import definition, deliver
from tests.webhook_receiver import Receiver, wait_until

PIPELINE = "shop"
KEY = "0123456789abcdef0123456789abcdef0123456789A="
ORDERS = table("orders", Column("id", "int8", key=True), Column("total", "int8"))
NOTES = table("notes", Column("id", "int8", key=True), Column("body", "text"))


def options_for(url: str, place: Path | str, **more: Any) -> WebhooksOptions:
    """As a pipeline file would have them, with what a receiver on loopback needs."""
    return WebhooksOptions.model_validate(
        {
            "url": url,
            "path": str(place),
            "secret_key": KEY,
            "allow": ["127.0.0.0/8"],
            "http": True,
            "retry": {"first": 0.05, "longest": 0.2},
            **more,
        }
    )


class Shop:
    """Two tables, some receivers. ``close`` at the end."""

    def __init__(
        self, url: str, place: Path | str, receiver: Receiver, *, name: str = PIPELINE, **more: Any
    ) -> None:
        self.options = options_for(url, place, **more)
        self.receiver = receiver
        self.database = Database(self.options.url, name, "test")
        self.database.set_up()
        self.subscriptions = Subscriptions(self.database)
        self.builder = ChangeBuilder()
        self.registry = Registry(name)
        self.destination: WebhooksDestination | None = None

    def start(self) -> WebhooksDestination:
        self.destination = WebhooksDestination(self.options, PIPELINE)
        self.destination.count_in(self.registry)
        self.destination.open()
        self.destination.prepare([definition(ORDERS), definition(NOTES)])
        return self.destination

    def stop(self) -> None:
        if self.destination is not None:
            self.destination.close()
            self.destination = None

    def close(self) -> None:
        self.stop()
        self.database.close()
        assert not self.receiver.wrongly_signed

    def add(self, path: str, **wanted: Any) -> str:
        secret = new_secret()
        entry, _ = KeptSecrets(self.options.secret_key).made(secret)
        self.receiver.secrets[path] = secret
        spec = WebhookSubscription.model_validate({"url": self.receiver.url(path), **wanted})
        return self.subscriptions.add(spec, entry)

    def insert(self, first: int, count: int, of: Table = ORDERS) -> None:
        """Rows in transactions of ten, in one batch."""
        assert self.destination is not None
        for start in range(first, first + count, 10):
            with self.builder.transaction():
                for number in range(start, min(start + 10, first + count)):
                    self.builder.insert(of, str(number), str(number))
        deliver(self.destination, self.builder.frontier, [self.builder.cut()])

    def ids(self, path: str) -> list[int]:
        """The ids of the rows that arrived, in the order of their arrival."""
        return [int(event["new"]["id"]) for event in self.events(path) if event.get("new")]

    def events(self, path: str) -> list[dict[str, Any]]:
        got = list(self.receiver.received)
        return [json.loads(each.body) for each in got if each.path == path]

    def wait_for(self, path: str, *ids: int) -> None:
        wait_until(lambda: set(ids) <= set(self.ids(path)))

    def wait_for_state(self, subscription: str, state: str) -> Kept:
        wait_until(lambda: self.subscriptions.one(subscription).state == state)
        return self.subscriptions.one(subscription)
