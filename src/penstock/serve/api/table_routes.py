"""Routes about tables: list, one table, what can be done to them, schema history."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Any

from fastapi import APIRouter, Query

from penstock.model.errors import UnknownTable
from penstock.operations.named_tables import parse_names, quoted
from penstock.operations.schema_history import schema_history
from penstock.operations.table_actions import OF_ALL_DESTINATIONS, TABLE_ACTIONS
from penstock.operations.table_summaries import TableSummary
from penstock.serve.api import answers
from penstock.serve.api import models as m
from penstock.serve.api.problems import declared
from penstock.serve.api.requests import (
    ChosenOf,
    CommandOf,
    CommandRequest,
    OneOf,
    PipelineOf,
    ServiceOf,
    from_cursor,
    shown,
    to_cursor,
)
from penstock.serve.catalogue import PipelineFile

router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["tables"])

_READ = declared(404, 409, 503)

_SUMMARIES = {
    "add": "Follow tables that the patterns do not match, or that were removed.",
    "remove": "Follow tables no longer.",
    "resync": "Copy tables anew; their rows at the destination are replaced.",
    "pause": "Let copies rest.",
    "resume": "Let paused copies go on.",
    "cancel": "Give copies up.",
    "retry": "Let errored tables be tried again.",
    "rollback": "Put one table one step back in the history of its states.",
}


@router.get("/tables", response_model=m.TableList, operation_id="list_tables", responses=_READ)
def list_tables(
    service: ServiceOf,
    file: ChosenOf,
    search: Annotated[str, Query(max_length=200, description="A part of the name.")] = "",
    phase: m.Phase | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[
        str | None, Query(max_length=1000, description="`next` of the answer before.")
    ] = None,
) -> m.TableList:
    """Tables by name, with their state and how far their copies are. Where the pipeline has several
    destinations, each table comes once for each, or for the one that is asked for.
    """
    found = answers.matching_tables(service.tables(file), search, phase)
    first = 0
    if cursor is not None:
        first = bisect_right(found, from_cursor(cursor), key=_place)
    page = found[first : first + limit]
    more = first + limit < len(found)
    return m.TableList(
        tables=[answers.table(table) for table in page],
        matching=len(found),
        next=to_cursor(_place(page[-1])) if more else None,
    )


def _place(table: TableSummary) -> str:
    """Where it stands in the list, as text. No name has such a character in it."""
    return f"{table.name}\x00{table.destination}"


@router.get("/table", response_model=m.TableModel, operation_id="show_table", responses=_READ)
def show_table(
    service: ServiceOf,
    file: OneOf,
    name: Annotated[str, Query(min_length=1, max_length=300)],
) -> m.TableModel:
    """One table, by its name as a command takes it."""
    wanted = quoted(*parse_names([name])[0])
    for table in service.tables(file):
        if table.name == wanted:
            return answers.table(table)
    raise UnknownTable(
        f"Pipeline {file.name} has no table {wanted}.", remedy="GET …/tables lists those it has."
    )


@router.get(
    "/schema-history",
    response_model=m.SchemaHistory,
    operation_id="schema_history",
    responses=_READ,
)
def history(
    file: OneOf, table: Annotated[str, Query(min_length=1, max_length=300)]
) -> m.SchemaHistory:
    """Every definition that a table had, and what was different from the one before."""
    versions = schema_history(file.require_config(), table)
    return shown(m.SchemaHistory, {"table": table, "versions": versions})


def _act(
    action: str, command: CommandRequest, file: PipelineFile, request: m.TablesRequest
) -> m.OutcomeModel:
    return command.once(
        request,
        lambda: answers.outcome(
            command.service.tables_action(command.actor, file, action, request.tables)
        ),
    )


def _add_action(action: str) -> None:
    def act_on_all(
        command: CommandOf, file: PipelineOf, request: m.TablesRequest
    ) -> m.OutcomeModel:
        return _act(action, command, file, request)

    def act_on_one(
        command: CommandOf, file: PipelineOf, request: m.TablesOfDestinationRequest
    ) -> m.OutcomeModel:
        return _act(action, command, file.only(request.destination), request)

    route: Any = router.post(
        f"/tables/{action}",
        response_model=m.OutcomeModel,
        operation_id=f"{action}_tables",
        summary=_SUMMARIES[action],
        responses=_READ,
    )
    route(act_on_all if action in OF_ALL_DESTINATIONS else act_on_one)


for _action in TABLE_ACTIONS:
    _add_action(_action)
