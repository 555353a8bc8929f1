"""`penstock webhooks`: subscriptions of a pipeline whose destination is webhooks."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.logs import shown_logs
from penstock.cli.pipeline_argument import PipelineFile, load_deliveries
from penstock.cli.terminal import say

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.config.metrics_config import MetricsConfig
    from penstock.destination.webhooks.options import WebhooksOptions
    from penstock.destination.webhooks.subscription import Kept
    from penstock.destination.webhooks.subscriptions import Subscriptions

webhooks_app = typer.Typer(no_args_is_help=True, help="Subscribe receivers, and deliver to them.")

SubscriptionId = Annotated[
    str, typer.Argument(metavar="ID", help="As `penstock webhooks list` shows it.")
]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret",
        help="env:NAME of an environment variable that begins with PENSTOCK_WEBHOOK_. Without it "
        "a secret is made and printed, once.",
    ),
]


@webhooks_app.command("add")
def add(
    file: PipelineFile,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are sent to.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", help="A pattern such as public.*; all without.")
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", help="insert, update, delete, truncate, …; all without."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help='TABLE=CONDITION, such as "public.orders=total > 100".'),
    ] = None,
    event_format: Annotated[
        str, typer.Option("--format", help="penstock, debezium or cloudevents.")
    ] = "penstock",
    secret: Secret = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", help="Requests at a time; 1 keeps commit order.")
    ] = 4,
    on_refused: Annotated[
        str, typer.Option("--on-refused", help="pause, or dead_letter: keep the event and go on.")
    ] = "pause",
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not ask the receiver to take a first event.")
    ] = False,
) -> None:
    """Subscribe a receiver to what is committed from now on.

    \b
    Example:
      penstock webhooks add shop.yaml https://example.com/hook --table public.orders
    """
    from penstock.destination.webhooks import managing
    from penstock.destination.webhooks.delivery.request import Requests
    from penstock.model.errors import ConfigError

    conditions = dict(_split(text) for text in where or [])
    if len(conditions) < len(where or []):
        raise ConfigError("--where: write one condition for each table")
    value: dict[str, Any] = {
        "url": url,
        "filter": conditions,
        "format": event_format,
        "secret": secret,
        "concurrency": concurrency,
        "on_refused": on_refused,
        "verify": not no_verify,
    }
    if table:
        value["tables"] = table
    if operation:
        value["operations"] = operation

    async def adding(options: WebhooksOptions, found: Subscriptions) -> tuple[Kept, str | None]:
        requests = Requests(options)
        try:
            return await managing.add(options, found, requests, value)
        finally:
            await requests.close()

    with _opened(file) as (options, subscriptions):
        kept, told = asyncio.run(adding(options, subscriptions))
    say(kept.id)
    _tell(told)


@webhooks_app.command("list")
def list_subscriptions(
    file: PipelineFile,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show all subscriptions, how they stand, and what went wrong last."""
    with _opened(file) as (_, subscriptions):
        found = subscriptions.all()
    if as_json:
        say(json.dumps([kept.to_json() for kept in found], indent=1))
        return
    for kept in found:
        say(_line(kept))


@webhooks_app.command("pause")
def pause(file: PipelineFile, subscription: SubscriptionId) -> None:
    """Send nothing until it is resumed. Its backlog is kept, up to destination.backlog."""
    with _opened(file) as (_, subscriptions):
        say(_line(subscriptions.pause(subscription)))


@webhooks_app.command("resume")
def resume(
    file: PipelineFile,
    subscription: SubscriptionId,
    skip: Annotated[
        bool,
        typer.Option("--skip", help="For one that is disabled: go on with what comes from now on."),
    ] = False,
) -> None:
    """Go on where it stood."""
    with _opened(file) as (_, subscriptions):
        say(_line(subscriptions.resume(subscription, skip=skip)))


@webhooks_app.command("test")
def test(file: PipelineFile, subscription: SubscriptionId) -> None:
    """Send one event that says nothing, signed as all others. Exits with 1 if it is not taken."""
    from penstock.operations.webhook_subscriptions import send_test

    with _opened(file) as (options, subscriptions):
        answer = send_test(options, subscriptions.one(subscription))
    say("delivered" if answer.verdict == "delivered" else f"not delivered: {answer.why}")
    if answer.verdict != "delivered":
        raise typer.Exit(1)


@webhooks_app.command("rotate")
def rotate(
    file: PipelineFile,
    subscription: SubscriptionId,
    secret: Secret = None,
    keep: Annotated[
        float, typer.Option("--keep-hours", min=0, help="How long the old one is used, too.")
    ] = 24.0,
) -> None:
    """Give it a new secret. For a while events are signed with both."""
    from penstock.destination.webhooks import managing

    with _opened(file) as (options, subscriptions):
        kept = subscriptions.one(subscription)
        kept, told = managing.rotate(options, subscriptions, kept, secret, keep * 3600)
    say(_line(kept))
    _tell(told)


@webhooks_app.command("remove")
def remove(file: PipelineFile, subscription: SubscriptionId) -> None:
    """Forget a subscription, its backlog and its dead letters."""
    with _opened(file) as (_, subscriptions):
        subscriptions.remove(subscription)
    say(f"removed {subscription}")


@webhooks_app.command("key")
def key() -> None:
    """Print a new key for destination.secret_key, which seals secrets in the database."""
    from cryptography.fernet import Fernet

    say(Fernet.generate_key().decode())


@webhooks_app.command("serve")
def serve(
    file: PipelineFile,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="ADDRESS",
            help="Where /metrics and /health are served, such as 127.0.0.1:8721; without it at a "
            "free port of loopback, or not at all with metrics.listen: false.",
        ),
    ] = None,
) -> None:
    """Deliver, and serve the API, apart from `penstock run` (destination.deliver: serve).

    It needs the outbox's folder and the database, not the source. Where these are away when it
    starts, it waits for them.
    """
    import logging

    from penstock.cli.run import StopOnSignal
    from penstock.destination.webhooks.delivery.shown_deliveries import ShownDeliveries
    from penstock.metrics.service import shown_metrics
    from penstock.model.errors import ConfigError

    view, options = _view(file)
    if options.deliver != "serve":
        raise ConfigError(
            "destination.deliver is run: `penstock run` delivers and serves the API",
            remedy="set destination.deliver: serve to do both with this command",
        )
    stopping = StopOnSignal()
    stopping.install()
    shown = ShownDeliveries(view, options)
    with (
        shown_logs(view.delivery, say),
        shown_metrics(shown, _metrics_at(view.metrics, metrics), say),
    ):
        shown.service.run(stopping)
        logging.getLogger(__name__).info("stopped", extra={"event": "stopped"})


def _view(file: Path) -> tuple[PipelineConfig, WebhooksOptions]:
    from penstock.operations.webhook_subscriptions import webhooks_view

    return webhooks_view(load_deliveries(file), file)


def _metrics_at(config: MetricsConfig, address: str | None) -> MetricsConfig:
    """`penstock run` has the address that the pipeline file names, perhaps on this machine."""
    from pydantic import ValidationError

    from penstock.config.metrics_config import MetricsConfig
    from penstock.model.errors import ConfigError

    if address is None and config.listen is None:
        return config
    try:
        own = MetricsConfig.model_validate({"listen": address or 0})
    except ValidationError:
        raise ConfigError(
            f"--metrics {address}: write an address such as 127.0.0.1:8721, or a port"
        ) from None
    return config.model_copy(update={"listen": own.listen})


def _opened(file: Path) -> AbstractContextManager[tuple[WebhooksOptions, Subscriptions]]:
    from penstock.operations.webhook_subscriptions import opened_subscriptions

    return opened_subscriptions(load_deliveries(file), file)


def _split(text: str) -> tuple[str, str]:
    from penstock.model.errors import ConfigError

    table, found, condition = text.partition("=")
    if not found or not condition.strip():
        raise ConfigError(f"--where {text}: write TABLE=CONDITION")
    return table.strip(), condition.strip()


def _line(kept: Kept) -> str:
    from penstock.model.quantity_text import bytes_text

    parts = [kept.id, kept.state, kept.wanted.url, f"{bytes_text(kept.behind)} behind"]
    if kept.dead_letters:
        parts.append(f"{kept.dead_letters} dead letters")
    said = kept.reason or kept.last_error
    return "  ".join(parts) + (f"  ({said})" if said else "")


def _tell(secret: str | None) -> None:
    if secret is not None:
        say(f"secret  {secret}  (shown once: give it to the receiver)")
