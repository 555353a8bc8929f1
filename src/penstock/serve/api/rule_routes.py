"""Routes about the rules of transform. None of them shows a value."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from penstock.operations.transform_rules import checked_rules
from penstock.serve.api import models as m
from penstock.serve.api.problems import declared
from penstock.serve.api.requests import CommandOf, OneOf, PipelineOf

router = APIRouter(prefix="/v1/pipelines/{pipeline}/transform", tags=["transform"])


@router.get(
    "/check",
    response_model=m.RuleFindings,
    operation_id="check_rules",
    responses=declared(404, 409, 503),
)
def check(file: OneOf) -> m.RuleFindings:
    """Every rule against the source's tables: types, lengths, keys, what refers to what."""
    findings = checked_rules(file.require_config())
    return m.RuleFindings(
        passed=all(found.status != "failed" for found in findings),
        findings=[m.RuleFindingModel(**asdict(found)) for found in findings],
    )


@router.post(
    "/accept",
    response_model=m.Accepted,
    operation_id="accept_rules",
    responses=declared(404, 409, 503),
)
def accept(command: CommandOf, file: PipelineOf, request: m.AcceptRequest) -> m.Accepted:
    """Take the rules and the key of now for those that rows were delivered under."""
    of = file.only(request.destination)
    return command.once(
        request,
        lambda: m.Accepted(tables=list(command.service.accept_rules(command.actor, of))),
    )
