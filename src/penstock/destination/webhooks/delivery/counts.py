"""What deliveries to receivers come to, as metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.destination.webhooks.delivery.request import EndpointAnswer, Request
from penstock.metrics.catalogue import (
    WEBHOOK_BEHIND,
    WEBHOOK_DELIVERED,
    WEBHOOK_FAILED,
    WEBHOOK_SECONDS,
    WEBHOOK_SUBSCRIPTIONS,
)

if TYPE_CHECKING:
    from penstock.destination.webhooks.delivery.worker import Worker
    from penstock.metrics.registry import Registry

Send = Callable[[Request], Awaitable[EndpointAnswer]]

_STATES = ("active", "failing", "paused", "disabled")


class DeliveryCounts:
    """Counts in a registry. Subscriptions have no series of their own: there may be thousands."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def counted(self, send: Send) -> Send:
        """The same way to send, with each request counted by what became of it."""

        async def counting(request: Request) -> EndpointAnswer:
            began = time.monotonic()
            answer = await send(request)
            self._registry.observe(WEBHOOK_SECONDS, time.monotonic() - began)
            if answer.verdict == "delivered":
                self._registry.add(WEBHOOK_DELIVERED)
            else:
                self._registry.add(WEBHOOK_FAILED, reason=answer.verdict)
            return answer

        return counting

    def standing(self, states: Mapping[str, int], workers: Iterable[Worker], newest: int) -> None:
        """How many subscriptions are in each of the stored ``states``; ``workers`` are those that
        are active, ``newest`` is the last segment of the outbox.
        """
        at_work = [worker for worker in workers if worker.ended is None]
        failing = sum(worker.failing_since is not None for worker in at_work)
        counts = {**states, "failing": failing, "active": states.get("active", 0) - failing}
        for state in _STATES:
            self._registry.set(WEBHOOK_SUBSCRIPTIONS, max(0, counts.get(state, 0)), state=state)
        behind = sum(worker.position(newest).segment <= newest for worker in at_work)
        self._registry.set(WEBHOOK_BEHIND, behind)
