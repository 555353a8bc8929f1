"""Routes about receivers of the destination webhooks. None of them tells a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from penstock.operations.webhook_subscriptions import opened_subscriptions, send_test
from penstock.serve.api import models as m
from penstock.serve.api.problems import declared
from penstock.serve.api.requests import CommandOf, PipelineOf, SeesRows, shown

if TYPE_CHECKING:
    from penstock.destination.webhooks.subscriptions import Subscriptions

router = APIRouter(prefix="/v1/pipelines/{pipeline}/webhooks", tags=["webhooks"])

_ANSWERS = declared(404, 409, 503)


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
        found = [shown(m.SubscriptionModel, kept.to_json()) for kept in subscriptions.all()]
    return m.SubscriptionList(subscriptions=found)


@router.post(
    "/pause",
    response_model=m.SubscriptionModel,
    operation_id="pause_subscription",
    responses=_ANSWERS,
)
def pause(
    command: CommandOf, file: PipelineOf, request: m.SubscriptionRequest
) -> m.SubscriptionModel:
    """Send nothing until it is resumed. Its backlog is kept."""
    name = request.subscription
    return command.once(
        request,
        lambda: command.service.on_subscriptions(
            command.actor,
            file,
            "pause",
            lambda _, found: shown(m.SubscriptionModel, found.pause(name).to_json()),
            subscription=name,
        ),
    )


@router.post(
    "/resume",
    response_model=m.SubscriptionModel,
    operation_id="resume_subscription",
    responses=_ANSWERS,
)
def resume(command: CommandOf, file: PipelineOf, request: m.ResumeRequest) -> m.SubscriptionModel:
    """Go on where it stood."""
    name, skip = request.subscription, request.skip
    return command.once(
        request,
        lambda: command.service.on_subscriptions(
            command.actor,
            file,
            "resume",
            lambda _, found: shown(m.SubscriptionModel, found.resume(name, skip=skip).to_json()),
            subscription=name,
            skip=skip,
        ),
    )


@router.post("/test", response_model=m.Tested, operation_id="test_subscription", responses=_ANSWERS)
def test(command: CommandOf, file: PipelineOf, request: m.SubscriptionRequest) -> m.Tested:
    """Send one event that says nothing, signed as all others."""
    name = request.subscription
    answer = command.service.on_subscriptions(
        command.actor,
        file,
        "test",
        lambda options, found: send_test(options, found.one(name)),
        subscription=name,
    )
    return m.Tested(delivered=answer.verdict == "delivered", why=answer.why)


@router.post(
    "/remove",
    response_model=m.SubscriptionList,
    operation_id="remove_subscription",
    responses=_ANSWERS,
)
def remove(
    command: CommandOf, file: PipelineOf, request: m.SubscriptionRequest
) -> m.SubscriptionList:
    """Forget a subscription, its backlog and its dead letters; those that are left."""
    name = request.subscription

    def left() -> m.SubscriptionList:
        def act(_: object, found: Subscriptions) -> list[m.SubscriptionModel]:
            found.remove(name)
            return [shown(m.SubscriptionModel, kept.to_json()) for kept in found.all()]

        done = command.service.on_subscriptions(
            command.actor, file, "remove", act, subscription=name
        )
        return m.SubscriptionList(subscriptions=done)

    return command.once(request, left)
