"""Errors as application/problem+json (RFC 9457), with the cause and the remedy of the CLI."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from penstock.model.errors import (
    ConfigError,
    DestinationUnavailable,
    LogUnavailable,
    PenstockError,
    SourceUnavailable,
    StoreUnavailable,
    UnknownLetter,
    UnknownSubscription,
    UnknownTable,
)
from penstock.serve.service import NotAllowed, UnknownJob, UnknownPipeline

_NOT_FOUND = (UnknownPipeline, UnknownJob, UnknownLetter, UnknownSubscription, UnknownTable)
_AWAY = (SourceUnavailable, StoreUnavailable, DestinationUnavailable, LogUnavailable)

_log = logging.getLogger(__name__)


class Problem(BaseModel):
    """What went wrong: ``detail`` says what and why, ``remedy`` what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    remedy: str = ""
    kind: str = Field(default="", description="The name of the error, as in the logs.")


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer beside its result; what the guard answers is in all of them."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": schema},
        }
        for status in sorted({400, 401, 403, 413, 414, 421, 422, 429, *statuses})
    }


def install(app: FastAPI) -> None:
    """Let the application answer with problems, whatever is raised."""
    app.add_exception_handler(PenstockError, _penstock)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def status_of(error: PenstockError) -> int:
    if isinstance(error, _NOT_FOUND):
        return 404
    if isinstance(error, _AWAY):
        return 503
    if isinstance(error, NotAllowed):
        return 403
    return 422 if isinstance(error, ConfigError) else 409


def _problem(status: int, detail: str, remedy: str = "", kind: str = "", **headers: str) -> Any:
    problem = Problem(
        title=HTTPStatus(status).phrase, status=status, detail=detail, remedy=remedy, kind=kind
    )
    return ProblemResponse(problem.model_dump(), status, headers)


async def _penstock(_request: Request, error: Exception) -> Any:
    assert isinstance(error, PenstockError)  # noqa: S101 (it is registered for these)
    status = status_of(error)
    headers = {"Retry-After": "5"} if status == 503 else {}
    return _problem(status, error.message, error.remedy, type(error).__name__, **headers)


async def _invalid(_request: Request, error: Exception) -> Any:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (it is registered for these)
    found = [
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in error.errors()[:10]
    ]
    return _problem(422, "; ".join(found), "/openapi.json describes every request.", "Invalid")


async def _http(_request: Request, error: Exception) -> Any:
    assert isinstance(error, HTTPException)  # noqa: S101 (it is registered for these)
    return _problem(error.status_code, str(error.detail), **dict(error.headers or {}))


async def _unexpected(request: Request, error: Exception) -> Any:
    _log.error(
        "%s %s failed: %s",
        *(request.method, request.url.path, type(error).__name__),
        exc_info=error,
        extra={"event": "request_failed"},
    )
    return _problem(
        500,
        f"Unexpected {type(error).__name__}.",
        "This is a bug in Penstock; the server's log says where. Please report it.",
    )
