"""What can be done with subscriptions, for the API and the command line alike."""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import UTC, datetime
from typing import Any

from penstock.destination.webhooks.delivery.request import EndpointAnswer, Request, Requests
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.subscription import Kept, parse_subscription
from penstock.destination.webhooks.subscriptions import Subscriptions
from penstock.model.errors import DestinationError

KEEP_OLD_SECRET = 86400.0


async def add(
    options: WebhooksOptions, subscriptions: Subscriptions, requests: Requests, value: object
) -> tuple[Kept, str | None]:
    """The new subscription, and its secret where that was made. Raises ConfigError for what is
    wrong with it, DestinationError where the receiver does not take a first event.
    """
    wanted = parse_subscription(value)
    keeping = KeptSecrets(options.secret_key)
    entry, told = keeping.made(wanted.secret)
    if wanted.verify:
        answer = await _send_test(requests, wanted, keeping.keys([entry]))
        if answer.verdict != "delivered":
            raise DestinationError(
                f"the receiver did not take the first event: {answer.why}",
                remedy="let it answer 2xx, or add the subscription with verify: false "
                "(--no-verify)",
            )
    # Apart from the loop, which delivers meanwhile.
    made = await asyncio.to_thread(subscriptions.add, wanted.without_secret(), entry)
    return await asyncio.to_thread(subscriptions.one, made), told


async def test(options: WebhooksOptions, requests: Requests, kept: Kept) -> EndpointAnswer:
    """Send an event that says nothing, whatever the subscription's state."""
    keys = KeptSecrets(options.secret_key).keys(kept.secrets)
    return await _send_test(requests, kept.wanted, keys)


def rotate(
    options: WebhooksOptions,
    subscriptions: Subscriptions,
    kept: Kept,
    secret: object,
    keep: float,
) -> tuple[Kept, str | None]:
    """A new secret; events are signed with the one before it, too, for ``keep`` seconds. Raises
    ConfigError for a secret that is none.
    """
    wanted = parse_subscription({"url": kept.wanted.url, "secret": secret})
    keeping = KeptSecrets(options.secret_key)
    entry, told = keeping.made(wanted.secret)
    entries = keeping.rotated(kept.secrets, entry, keep)
    return subscriptions.rotate(kept.id, entries), told


async def _send_test(requests: Requests, wanted: Any, keys: list[bytes]) -> EndpointAnswer:
    body = {"type": "penstock.test", "timestamp": datetime.now(UTC).isoformat(), "data": {}}
    if wanted.format == "cloudevents":
        body = {
            "specversion": "1.0",
            "id": secrets.token_hex(8),
            "source": "/penstock",
            "type": "penstock.test",
        }
    request = Request(
        wanted.url,
        wanted.format,
        f"msg_test_{secrets.token_hex(8)}",
        json.dumps(body).encode(),
        keys,
    )
    return await requests.send(request)
