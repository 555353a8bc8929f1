"""The contract suite on `webhooks`: what a receiver gets that knows events by their id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.contract import Destination
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.destination import WebhooksDestination
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.outbox import message_id, outbox_storage, read_segment
from penstock.destination.webhooks.signing import new_secret
from penstock.destination.webhooks.subscription import WebhookSubscription
from penstock.destination.webhooks.subscriptions import Subscriptions
from penstock.testing import Adapter, DestinationContract, parse_line
from tests.contract.queue_adapter import QueueAdapter
from tests.objects_server import ObjectServer
from tests.webhook_receiver import Received, Receiver, wait_until

PIPELINE = "shop"
KEY = "0123456789abcdef0123456789abcdef0123456789A="


class WebhooksAdapter(QueueAdapter):
    """One subscription to everything."""

    chunk_stands_once: ClassVar[bool] = True
    chunk_waits_for_commit: ClassVar[bool] = True
    chunk_is_sent: ClassVar[bool] = False

    def __init__(self, url: str, place: str, receiver: Receiver, **more: Any) -> None:
        super().__init__()
        self.receiver = receiver
        self.options = WebhooksOptions.model_validate(
            {
                "url": url,
                "path": place,
                "secret_key": KEY,
                "allow": ["127.0.0.0/8"],
                "http": True,
                "max_body": "64MiB",
                "retry": {"first": 0.05, "longest": 0.5},
                **more,
            }
        )
        self.database = Database(ConnectionUrl(url), PIPELINE, "test")
        self.database.set_up()
        secret = new_secret()
        entry, _ = KeptSecrets(self.options.secret_key).made(secret)
        path = f"/{self.name}"
        receiver.secrets[path] = secret
        Subscriptions(self.database).add(WebhookSubscription(url=receiver.url(path)), entry)

    def connect(self) -> Destination:
        return WebhooksDestination(self.options, PIPELINE)

    def close(self) -> None:
        super().close()
        self.database.close()
        assert not self.receiver.wrongly_signed

    def events(self) -> list[dict[str, Any]]:
        wait_until(lambda: self._committed() <= {got.id for got in self._received()})
        seen: dict[str, dict[str, Any]] = {}
        for got in self._received():
            event = parse_line(got.body)
            assert seen.setdefault(got.id, event) == event
        return list(seen.values())

    def _received(self) -> list[Received]:
        return [got for got in list(self.receiver.received) if got.path == f"/{self.name}"]

    def _committed(self) -> set[str]:
        """The ids of all that stands in the outbox; what is gone from there was delivered."""
        storage = outbox_storage(self.options.path, PIPELINE, self.options.revealed_path_options)
        with self.database.transaction("test") as conn:
            rows = conn.execute("SELECT number, file FROM penstock.webhook_segment").fetchall()
        found: set[str] = set()
        for number, file in rows:
            segment = read_segment(storage, number, file)
            if segment is not None:
                names = ("commit_lsn", "ordinal", "part", "apart")
                columns = (segment.events.column(name).to_pylist() for name in names)
                found.update(
                    message_id(segment.source, *place) for place in zip(*columns, strict=True)
                )
        return found


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


class TestWebhooks(DestinationContract):
    @pytest.fixture
    def adapter(self, database: str, tmp_path: Path, receiver: Receiver) -> Iterator[Adapter]:
        adapter = WebhooksAdapter(database, str(tmp_path), receiver)
        yield adapter
        adapter.close()


@pytest.mark.release
class TestWebhooksInAnObjectStore(DestinationContract):
    @pytest.fixture
    def adapter(
        self, database: str, object_server: ObjectServer, receiver: Receiver
    ) -> Iterator[Adapter]:
        options = object_server.direct_options
        adapter = WebhooksAdapter(database, object_server.place(), receiver, path_options=options)
        yield adapter
        adapter.close()
