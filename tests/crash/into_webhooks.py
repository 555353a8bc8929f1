"""A pipeline into webhooks under load, whose receiver fails all the time, judged event by event."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.delivery.service import WebhookService
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.outbox_index import OutboxIndex
from penstock.destination.webhooks.signing import new_secret
from penstock.destination.webhooks.subscription import WebhookSubscription
from penstock.destination.webhooks.subscriptions import Subscriptions
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Frontier, parse_lsn
from penstock.testing import parse_line
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.queue_judge import judge_events
from tests.crash.witness import call_witness
from tests.webhook_receiver import Received, Receiver, Reply, wait_until
from tests.webhook_shop import KEY
from tests.workload import Workload

PATH = "/hook"
_PAUSE_SECONDS = 0.5


class IntoWebhooks(InjuredPipeline):
    """One subscription to everything, with a second slot as witness of every single change."""

    failpoints = passed_failpoints("webhooks")

    def __init__(
        self, server: EmbeddedPostgres, receiver: Receiver, folder: Path, seed: int
    ) -> None:
        super().__init__(server, folder, seed)
        self.load = Workload(self.url, seed, pause=_PAUSE_SECONDS)
        self.receiver = receiver
        self._chance = random.Random(seed)
        self.share_of_errors = 0.1
        options = {
            "url": self.url,
            "path": str(folder / "outbox"),
            "secret_key": KEY,
            "allow": ["127.0.0.0/8"],
            "http": True,
            "timeout": "5s",
            "retry": {"first": 0.05, "longest": 0.5},
            "max_body": "64MiB",
        }
        self.options = WebhooksOptions.model_validate(options)
        self.pipeline.configure(
            destination={"type": "webhooks", **options}, batch=SHORT_BATCHES, **SMALL_SEGMENTS
        )
        self.rewrite()
        self.publications = self.pipeline.subscribe().publications
        self.database = Database(ConnectionUrl(self.url), self.pipeline.name, "test")
        self.database.set_up()
        secret = new_secret()
        receiver.secrets[PATH] = secret
        receiver.decide[PATH] = self._reply
        entry, _ = KeptSecrets(self.options.secret_key).made(secret)
        wanted = WebhookSubscription(url=receiver.url(PATH))
        self.subscriptions = Subscriptions(self.database)
        self.subscription = self.subscriptions.add(wanted, entry)
        call_witness(self.url)

    def frontier(self) -> Frontier:
        try:
            held = OutboxIndex(self.database).watermarks()
        except DestinationUnavailable:
            # The subscriptions are in the source's database, which faults stop.
            return Frontier(0, 0)
        return held.frontier if held else Frontier(0, 0)

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        self._deliver_rest()
        self.database.close()
        assert not self.receiver.wrongly_signed
        seen: dict[str, dict[str, Any]] = {}
        for got in self.receiver.received:
            seen.setdefault(got.id, parse_line(got.body))
        events = list(seen.values())
        _check_order(events)
        return judge_events(self, self.publications, events)

    def _deliver_rest(self) -> None:
        """What the last run had put into the outbox, but not sent yet."""
        service = WebhookService(self.options, self.pipeline.name)
        service.start()
        try:
            wait_until(lambda: self.subscriptions.one(self.subscription).behind == 0, 180)
        finally:
            service.stop()

    def _reply(self, _got: Received) -> Reply:
        return Reply(503 if self._chance.random() < self.share_of_errors else 204)


def _check_order(events: list[dict[str, Any]]) -> None:
    """The events of a key came in order, once those that were sent again are left out."""
    places = defaultdict(list)
    for event in events:
        if event.get("key") is not None:
            at = event["position"]
            key = event["table"], json.dumps(event["key"], sort_keys=True)
            places[key].append((parse_lsn(at["commit_lsn"]), int(at["ordinal"])))
    for key, found in places.items():
        assert found == sorted(found), f"{key} is out of order"
