"""Subscriptions of a pipeline whose destination is webhooks, for who looks after them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import ConfigError, UnknownSubscription

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.destination.webhooks.delivery.request import EndpointAnswer
    from penstock.destination.webhooks.options import WebhooksOptions
    from penstock.destination.webhooks.subscription import Kept
    from penstock.destination.webhooks.subscriptions import Subscriptions


def webhooks_view(
    views: Sequence[PipelineConfig], file: Path
) -> tuple[PipelineConfig, WebhooksOptions]:
    """The one destination of the file that is webhooks. Raises ConfigError where there is none."""
    from penstock.destination.webhooks.options import WebhooksOptions

    found = [view for view in views if view.destination_type == "webhooks"]
    if len(found) != 1:
        kinds = ", ".join(view.destination_type for view in views)
        raise ConfigError(
            f"{file}: one destination is to be webhooks; it has {kinds}",
            remedy="name a pipeline file with destination.type: webhooks",
        )
    return found[0], WebhooksOptions.model_validate(found[0].destination_options)


@contextmanager
def opened_subscriptions(
    views: Sequence[PipelineConfig], file: Path
) -> Iterator[tuple[WebhooksOptions, Subscriptions]]:
    """Raises ConfigError where no destination is webhooks, UnknownSubscription for an id that is
    not there.
    """
    from penstock.destination.webhooks.database import Database
    from penstock.destination.webhooks.subscriptions import NotFound, Subscriptions

    view, options = webhooks_view(views, file)
    database = Database(options.url, view.delivery, "webhooks")
    try:
        database.set_up()
        yield options, Subscriptions(database)
    except NotFound as error:
        raise UnknownSubscription(error.message, remedy=error.remedy) from None
    finally:
        database.close()


def send_test(options: WebhooksOptions, kept: Kept) -> EndpointAnswer:
    """Send one event that says nothing, signed as all others."""
    from penstock.destination.webhooks import managing
    from penstock.destination.webhooks.delivery.request import Requests

    async def testing() -> EndpointAnswer:
        requests = Requests(options)
        try:
            return await managing.test(options, requests, kept)
        finally:
            await requests.close()

    return asyncio.run(testing())
