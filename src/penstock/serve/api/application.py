"""The API as an application, without the guard that stands in front of it."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI

from penstock.serve.api import (
    event_routes,
    job_routes,
    pipeline_routes,
    problems,
    rule_routes,
    subscription_routes,
    table_routes,
)
from penstock.serve.api.problems import Problem
from penstock.serve.api.replays import Replays
from penstock.serve.service import Service

_DESCRIPTION = """All that `penstock` on the command line can do to pipelines that are served here.

Requests carry `Authorization: Bearer TOKEN` (`penstock tokens create`). Reading needs the role
read, changing the role operate. Errors are `application/problem+json` with the cause and the
remedy that the command line prints."""


def make_application(service: Service) -> FastAPI:
    """No /docs: its page would load scripts from elsewhere."""
    app = FastAPI(
        title="Penstock",
        version=version("penstock"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.service = service
    app.state.replays = Replays(service.folder.replays)
    problems.install(app)
    for routes in (
        *(pipeline_routes, table_routes, job_routes, event_routes),
        *(rule_routes, subscription_routes),
    ):
        app.include_router(routes.router)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """What FastAPI cannot know: the form of problems, and that a token is needed."""
    document = app.openapi()
    schemas = document["components"]["schemas"]
    schemas["Problem"] = Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    document["paths"]["/v1/health"]["get"]["security"] = []
