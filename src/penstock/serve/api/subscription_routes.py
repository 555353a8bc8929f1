"""Routes about receivers of the destination webhooks. None of them tells a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel

from penstock.operations.webhook_subscriptions import opened_subscriptions, send_test
from penstock.serve.api import models as m
from penstock.serve.api.problems import declared
from penstock.serve.api.requests import CommandOf, CommandRequest, PipelineOf, SeesRows, shown
from penstock.serve.catalogue import PipelineFile

if TYPE_CHECKING:
    from penstock.destination.webhooks.options import WebhooksOptions
    from penstock.destination.webhooks.subscription import Kept
    from penstock.destination.webhooks.subscriptions import Subscriptions

T = TypeVar("T", bound=BaseModel)

router = APIRouter(prefix="/v1/pipelines/{pipeline}/webhooks", tags=["webhooks"])

_ANSWERS = declared(404, 409, 503)


def _post(action: str, model: type[BaseModel]) -> dict[str, Any]:
    return {
        "path": f"/{action}",
        "response_model": model,
        "operation_id": f"{action}_subscription",
        "responses": _ANSWERS,
    }


@router.get(
    "",
    response_model=m.SubscriptionList,
    operation_id="list_subscriptions",
    responses=_ANSWERS,
    dependencies=[SeesRows],
)
def list_subscriptions(file: PipelineOf) -> m.SubscriptionList:
    """All subscriptions, how they stand, and what went wrong last. Needs the role operate: the
    address of a receiver is often its key.
    """
    file.require_config()
    with opened_subscriptions(file.views, file.path) as (_, subscriptions):
        found = [_shown(kept) for kept in subscriptions.all()]
    return m.SubscriptionList(subscriptions=found)


def _steer(
    command: CommandRequest,
    file: PipelineFile,
    action: str,
    request: m.SubscriptionRequest,
    act: Callable[[WebhooksOptions, Subscriptions], T],
) -> T:
    """Do it to the receiver that the request names, and once where it has a key."""
    fields = request.model_dump()
    return command.once(
        request,
        lambda: command.service.on_subscriptions(command.actor, file, action, act, **fields),
    )


def _shown(kept: Kept) -> m.SubscriptionModel:
    return shown(m.SubscriptionModel, kept.to_json())


@router.post(**_post("pause", m.SubscriptionModel))
def pause(
    command: CommandOf, file: PipelineOf, request: m.SubscriptionRequest
) -> m.SubscriptionModel:
    """Send nothing until it is resumed. Its backlog is kept."""
    name = request.subscription
    return _steer(command, file, "pause", request, lambda _, of: _shown(of.pause(name)))


@router.post(**_post("resume", m.SubscriptionModel))
def resume(command: CommandOf, file: PipelineOf, request: m.ResumeRequest) -> m.SubscriptionModel:
    """Go on where it stood."""
    name, skip = request.subscription, request.skip
    return _steer(
        command, file, "resume", request, lambda _, of: _shown(of.resume(name, skip=skip))
    )


@router.post(**_post("test", m.Tested))
def test(command: CommandOf, file: PipelineOf, request: m.SubscriptionRequest) -> m.Tested:
    """Send one event that says nothing, signed as all others."""

    def send(options: WebhooksOptions, of: Subscriptions) -> m.Tested:
        answer = send_test(options, of.one(request.subscription))
        return m.Tested(delivered=answer.verdict == "delivered", why=answer.why)

    return _steer(command, file, "test", request, send)


@router.post(**_post("remove", m.SubscriptionList))
def remove(
    command: CommandOf, file: PipelineOf, request: m.SubscriptionRequest
) -> m.SubscriptionList:
    """Forget a subscription, its backlog and its dead letters; those that are left."""

    def take_away(_: WebhooksOptions, of: Subscriptions) -> m.SubscriptionList:
        of.remove(request.subscription)
        return m.SubscriptionList(subscriptions=[_shown(kept) for kept in of.all()])

    return _steer(command, file, "remove", request, take_away)
