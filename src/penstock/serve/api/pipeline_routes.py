"""Routes about whole pipelines: status, start and stop, metrics, configuration."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from penstock.operations.hidden_secrets import shown_configuration
from penstock.serve.api import answers
from penstock.serve.api import models as m
from penstock.serve.api.problems import declared
from penstock.serve.api.requests import ChosenOf, CommandOf, PipelineOf, ServiceOf

router = APIRouter(prefix="/v1")

_OF_PIPELINE = declared(404)


@router.get("/health", response_model=m.Alive, operation_id="health", tags=["server"])
def health() -> m.Alive:
    """Whether the server answers. Needs no token."""
    return m.Alive()


@router.get(
    "/pipelines",
    response_model=m.PipelineList,
    operation_id="list_pipelines",
    responses=declared(),
    tags=["pipelines"],
)
def list_pipelines(service: ServiceOf) -> m.PipelineList:
    """All pipelines at a glance."""
    files = service.catalogue.all()
    return m.PipelineList(pipelines=[answers.pipeline(service.overview(file)) for file in files])


@router.get(
    "/pipelines/{pipeline}",
    response_model=m.PipelineStatus,
    operation_id="status",
    responses=_OF_PIPELINE,
    tags=["pipelines"],
)
def status(service: ServiceOf, file: PipelineOf) -> m.PipelineStatus:
    """How it stands: process, slot, lag, change log, tables, refused rows."""
    return answers.status(service, file)


@router.post(
    "/pipelines/{pipeline}/start",
    response_model=m.Process,
    operation_id="start",
    responses=declared(404, 409),
    tags=["pipelines"],
)
def start(command: CommandOf, file: PipelineOf) -> m.Process:
    """Let it run, and keep it running. One that runs goes on."""
    return command.once(
        None, lambda: answers.process(command.service.start_pipeline(command.actor, file))
    )


@router.post(
    "/pipelines/{pipeline}/stop",
    response_model=m.Process,
    operation_id="stop",
    responses=declared(404, 409),
    tags=["pipelines"],
)
def stop(command: CommandOf, file: PipelineOf, request: m.StopRequest | None = None) -> m.Process:
    """Stop it in order, and keep it stopped."""
    now = request is not None and request.now
    return command.once(
        request,
        lambda: answers.process(command.service.stop_pipeline(command.actor, file, now=now)),
    )


@router.get(
    "/pipelines/{pipeline}/metrics",
    response_model=m.MetricSeries,
    operation_id="metrics",
    responses=declared(404, 409),
    tags=["metrics"],
)
def metrics(
    service: ServiceOf,
    file: ChosenOf,
    minutes: Annotated[int, Query(ge=1, le=1440)] = 60,
    points: Annotated[int, Query(ge=2, le=1000)] = 300,
) -> m.MetricSeries:
    """Rates, lags and times of batches over the last minutes, as far as a server has run; of one
    destination, or of all together.
    """
    series = service.sampler.series(file.name, file.destination)
    found = series.points(time.time() - 60 * minutes, points)
    return m.MetricSeries(
        points=[
            m.MetricPoint(
                at=datetime.fromtimestamp(point.at, UTC).isoformat(timespec="milliseconds"),
                values=dict(point.values),
            )
            for point in found
        ]
    )


@router.get(
    "/pipelines/{pipeline}/configuration",
    response_model=m.Configuration,
    operation_id="configuration",
    responses=_OF_PIPELINE,
    tags=["pipelines"],
)
def configuration(file: PipelineOf) -> m.Configuration:
    """The pipeline file with its defaults. Secrets are left out."""
    file.require_config()
    return m.Configuration(configuration=shown_configuration(file.views, file.path))
