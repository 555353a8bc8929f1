"""What every route of the API needs: the service, who asks, which pipeline."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Path, Query, Request
from pydantic import BaseModel

from penstock.model.errors import ConfigError
from penstock.serve.api.models import DestinationText
from penstock.serve.api.replays import Replays
from penstock.serve.catalogue import PipelineFile
from penstock.serve.safety.guard import IDENTITY
from penstock.serve.safety.identity import Identity
from penstock.serve.service import Actor, NotAllowed, Service

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class CommandRequest:
    """One request for a change."""

    service: Service
    actor: Actor
    replays: Replays
    place: str
    key: str | None

    def once(self, request: BaseModel | None, act: Callable[[], T]) -> T:
        """Do it; where the client gave a key, once alone."""
        if self.key is None:
            return act()
        text = "" if request is None else request.model_dump_json()
        return self.replays.once((self.actor.identity.name, self.place, self.key), text, act)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _identity(request: Request) -> Identity:
    identity: Identity = request.scope[IDENTITY]
    return identity


def _command(
    request: Request,
    service: ServiceOf,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="The same key again does nothing twice.")
    ] = None,
) -> CommandRequest:
    address = request.client.host if request.client else ""
    actor = Actor(_identity(request), address)
    return CommandRequest(
        service, actor, request.app.state.replays, request.url.path, idempotency_key
    )


def _sees_rows(request: Request, service: ServiceOf) -> Identity:
    """For routes that show values of rows, or where they are sent to: the role read is for how
    pipelines stand.
    """
    identity = _identity(request)
    if not identity.may_operate:
        address = request.client.host if request.client else ""
        text = f"{identity.name} may see how pipelines stand, not what they carry."
        service.audit.refused(address, request.method, request.url.path, text, identity.name)
        raise NotAllowed(text, remedy="Ask for a token with the role operate.")
    return identity


def _pipeline(
    service: ServiceOf,
    pipeline: Annotated[str, Path(pattern=r"^[a-z0-9_]{1,40}$", description="Its name.")],
) -> PipelineFile:
    return service.pipeline(pipeline)


def _chosen(
    service: ServiceOf,
    file: PipelineOf,
    destination: Annotated[
        DestinationText | None, Query(description="One of several destinations.")
    ] = None,
) -> PipelineFile:
    return file if destination is None else file.only(destination)


def _one(file: ChosenOf) -> PipelineFile:
    return file.only(file.destination or None)


ServiceOf = Annotated[Service, Depends(_service)]
IdentityOf = Annotated[Identity, Depends(_identity)]
CommandOf = Annotated[CommandRequest, Depends(_command)]
PipelineOf = Annotated[PipelineFile, Depends(_pipeline)]
"""With all its destinations."""

ChosenOf = Annotated[PipelineFile, Depends(_chosen)]
"""With the destination that the request names; with all where it names none."""

SeesRows = Depends(_sees_rows)
"""A dependency of routes that show values of rows: refuses who may only look."""

OneOf = Annotated[PipelineFile, Depends(_one)]
"""With one destination; where there are several, the request has to name it."""


def to_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def from_cursor(cursor: str) -> str:
    """Raises ConfigError for anything but what ``to_cursor`` gave."""
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ConfigError(
            "The cursor is not one that this server gave.",
            remedy="Begin without a cursor, and take `next` of each answer.",
        ) from None


def shown(model: type[T], values: Any) -> T:
    """A model of what an operation gave as plain values."""
    return model.model_validate(values)
