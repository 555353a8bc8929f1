"""Routes about events: the last ones as a list, and all that come as a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from penstock.serve.api import models as m
from penstock.serve.api.problems import declared
from penstock.serve.api.requests import PipelineOf, ServiceOf
from penstock.serve.observe.events import Events

router = APIRouter(prefix="/v1", tags=["events"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: each has an id, an event and JSON data.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
LastId = Annotated[
    int | None,
    Header(alias="Last-Event-ID", ge=0, le=2**63 - 1, description="Go on behind this event."),
]
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.get(
    "/pipelines/{pipeline}/events",
    response_model=m.EventList,
    operation_id="list_events",
    responses=declared(404),
)
def list_events(service: ServiceOf, file: PipelineOf, limit: Limit = 200) -> m.EventList:
    """What the pipeline logged, and what was done to it, oldest first."""
    found = service.events.latest(file.name, most=limit)
    return m.EventList(events=[m.EventModel(**event.to_json()) for event in found])


@router.get(
    "/pipelines/{pipeline}/events/stream",
    response_class=StreamingResponse,
    operation_id="stream_events",
    responses={**_STREAM, **declared(404)},
)
async def stream_events(
    service: ServiceOf, file: PipelineOf, last_event_id: LastId = None
) -> StreamingResponse:
    """The last events of one pipeline, then each as it comes."""
    return _stream(service.events, file.name, last_event_id)


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    operation_id="stream_all_events",
    responses={**_STREAM, **declared()},
)
async def stream_all(service: ServiceOf, last_event_id: LastId = None) -> StreamingResponse:
    """The same of all pipelines."""
    return _stream(service.events, None, last_event_id)


def _stream(events: Events, pipeline: str | None, after: int | None) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async for found in events.follow(pipeline, after):
            # A comment keeps the connection, and shows a proxy that it lives.
            yield ": alive\n\n"
            for event in found:
                data = json.dumps(event.to_json(), default=str)
                yield f"id: {event.number}\nevent: {_word(event.event)}\ndata: {data}\n\n"

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


def _word(event: str) -> str:
    """An event's name comes from a log: no line break may end the field early."""
    return "".join(char for char in event if char.isalnum() or char in "_-") or "log"
