"""Routes about long operations (check, verify, init, snapshot, destroy) and refused rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from penstock.destination.dead_letters import DeadLetter
from penstock.model.errors import ConfigError
from penstock.operations.dead_letters import get_letter, list_letters
from penstock.serve.api import answers
from penstock.serve.api import models as m
from penstock.serve.api.problems import declared
from penstock.serve.api.requests import (
    CommandOf,
    IdentityOf,
    OneOf,
    PipelineOf,
    SeesRows,
    ServiceOf,
)
from penstock.serve.catalogue import PipelineFile
from penstock.serve.supervise.jobs import JobKind

router = APIRouter(prefix="/v1/pipelines/{pipeline}")

JobId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
LetterId = Annotated[int, Path(ge=1, le=2**63 - 1)]

_VERIFY_OPTIONS = ("parallel", "show", "wait")


@router.post(
    "/jobs",
    response_model=m.JobModel,
    status_code=202,
    operation_id="start_job",
    responses=declared(404, 409),
    tags=["operations"],
)
def start_job(
    command: CommandOf, file: PipelineOf, request: m.JobRequest, response: Response
) -> m.JobModel:
    """Start a check, a verification or another long operation. One of a kind runs at a time: asking
    again gives the one that runs.
    """
    options = {
        name: value for name in _VERIFY_OPTIONS if (value := getattr(request, name)) is not None
    }
    if options and request.kind != "verify":
        raise ConfigError(f"{request.kind} takes none of {', '.join(_VERIFY_OPTIONS)}.")
    if request.kind == "destroy" and request.confirm != (request.destination or file.name):
        raise ConfigError(
            f"Destroying pipeline {file.name} was not confirmed; nothing was changed.",
            remedy="Give the pipeline's name as `confirm`, or that of the destination.",
        )
    of = job_target(file, request.kind, request.destination)
    job = command.once(
        request,
        lambda: answers.job(command.service.start_job(command.actor, of, request.kind, options)),
    )
    response.headers["Location"] = f"/v1/pipelines/{file.name}/jobs/{job.id}"
    return job


def job_target(file: PipelineFile, kind: JobKind, destination: str | None) -> PipelineFile:
    """The pipeline, or one destination of it. Raises ConfigError where that is not for the kind, or
    where it has to be said which.
    """
    if kind == "init" and destination is not None:
        raise ConfigError("init is for the whole pipeline.", remedy="Leave `destination` out.")
    if kind == "destroy" and destination is not None:
        # Also one that the file does not name any more.
        return replace(file, destination=destination)
    return file if destination is None and kind != "snapshot" else file.only(destination)


@router.get(
    "/jobs",
    response_model=m.JobList,
    operation_id="list_jobs",
    responses=declared(404),
    tags=["operations"],
)
def list_jobs(service: ServiceOf, file: PipelineOf) -> m.JobList:
    """Those that run, and the last ones that ended, newest first; without their reports."""
    jobs = [answers.job(job) for job in service.jobs.of(file.name)]
    return m.JobList(jobs=[job.model_copy(update={"report": None, "said": ""}) for job in jobs])


@router.get(
    "/jobs/{job}",
    response_model=m.JobModel,
    operation_id="show_job",
    responses=declared(404),
    tags=["operations"],
)
def show_job(service: ServiceOf, identity: IdentityOf, file: PipelineOf, job: JobId) -> m.JobModel:
    """How far it is, and what it found. Which rows differ is shown to the role operate alone."""
    found = service.job(file, job)
    return answers.job(found if identity.may_operate else found.without_rows())


@router.delete(
    "/jobs/{job}",
    response_model=m.JobModel,
    operation_id="cancel_job",
    responses=declared(404, 409),
    tags=["operations"],
)
def cancel_job(command: CommandOf, file: PipelineOf, job: JobId) -> m.JobModel:
    """Ask it to end."""
    return answers.job(command.service.cancel_job(command.actor, file, job))


@router.get(
    "/dead-letters",
    response_model=m.DeadLetterList,
    operation_id="list_dead_letters",
    responses=declared(404, 409, 503),
    dependencies=[SeesRows],
    tags=["dead letters"],
)
def list_dead_letters(
    file: OneOf,
    table: Annotated[str | None, Query(max_length=300)] = None,
    after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> m.DeadLetterList:
    """Rows that the destination refused and keeps. Needs the role operate: they have values."""
    # PostgreSQL's text holds no such character, so no table is called so.
    if table is not None and "\x00" in table:
        return m.DeadLetterList(letters=[], next=None)
    letters = list_letters(file.require_config(), table=table, after=after, most=limit)
    return m.DeadLetterList(
        letters=list(letters),
        next=letters[-1].id if len(letters) == limit else None,
    )


@router.get(
    "/dead-letters/{letter}",
    response_model=DeadLetter,
    operation_id="show_dead_letter",
    responses=declared(404, 409, 503),
    dependencies=[SeesRows],
    tags=["dead letters"],
)
def show_dead_letter(file: OneOf, letter: LetterId) -> DeadLetter:
    """One of them, with its values. Needs the role operate."""
    return get_letter(file.require_config(), letter)


@router.post(
    "/dead-letters/retry",
    response_model=m.OutcomeModel,
    operation_id="retry_dead_letters",
    responses=declared(404, 409, 503),
    tags=["dead letters"],
)
def retry(command: CommandOf, file: PipelineOf, request: m.DiscardRequest) -> m.OutcomeModel:
    """Bring their rows again as they are now, by copying their tables anew; the letters go. A row
    that is refused again is a new one.
    """
    of = file.only(request.destination)
    return command.once(
        request,
        lambda: answers.outcome(command.service.retry_letters(command.actor, of, request.ids)),
    )


@router.post(
    "/dead-letters/discard",
    response_model=m.Discarded,
    operation_id="discard_dead_letters",
    responses=declared(404, 409, 503),
    tags=["dead letters"],
)
def discard(command: CommandOf, file: PipelineOf, request: m.DiscardRequest) -> m.Discarded:
    """Remove some for good. Ids that are not there (any more) are left out of the answer."""
    of = file.only(request.destination)
    return command.once(
        request,
        lambda: m.Discarded(
            discarded=list(command.service.discard(command.actor, of, request.ids))
        ),
    )
