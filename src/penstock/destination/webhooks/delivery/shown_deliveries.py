"""What `penstock webhooks serve` shows of itself to whoever watches over it."""

from __future__ import annotations

from typing import Any

from penstock.config import PipelineConfig
from penstock.destination.webhooks.delivery.service import WebhookService
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.metrics.catalogue import OF_WEBHOOKS, WEBHOOK_SUBSCRIPTIONS
from penstock.metrics.health import Answer
from penstock.metrics.registry import Registry
from penstock.model.errors import PenstockError


class ShownDeliveries:
    """Deliveries of one pipeline, counted and watched. The caller starts and stops ``service``."""

    def __init__(self, view: PipelineConfig, options: WebhooksOptions) -> None:
        self.registry = Registry(view.name, view.destination_name, OF_WEBHOOKS)
        self.service = WebhookService(options, view.delivery, self.registry)

    def exposition(self) -> bytes:
        return self.registry.exposition()

    def summary(self) -> dict[str, Any]:
        states = ("active", "failing", "paused", "disabled")
        count = self.registry.total
        return {
            "pipeline": self.registry.pipeline,
            "subscriptions": {s: int(count(WEBHOOK_SUBSCRIPTIONS, state=s)) for s in states},
        }

    def is_healthy(self) -> Answer:
        """Whether anything is delivered. That a receiver is away is no fault of ours."""
        reasons = []
        try:
            self.service.check()
            if self.service.has_ended:
                reasons.append("nothing is delivered: it has not started, or was stopped")
        except PenstockError as error:
            reasons.append(f"nothing is delivered: {error.message}")
        status = "not healthy" if reasons else "healthy"
        return Answer(not reasons, {"status": status, "reasons": reasons})

    def is_ready(self) -> Answer:
        return self.is_healthy()
