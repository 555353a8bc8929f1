"""What the service knows, as the models of the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from penstock.destination.registry import count_dead_letters
from penstock.model.errors import PenstockError
from penstock.model.lsn import format_lsn
from penstock.operations.outcome import Outcome
from penstock.operations.table_summaries import TableSummary
from penstock.serve.api import models as m
from penstock.serve.catalogue import PipelineFile
from penstock.serve.observe.looks import log_status
from penstock.serve.service import Overview, Service, utc
from penstock.serve.supervise.jobs import JobView
from penstock.serve.supervise.supervisor import ProcessView


def process(view: ProcessView) -> m.Process:
    return m.Process(
        state=view.state,
        wanted=view.wanted,
        pid=view.pid,
        began_at=utc(view.began_at),
        adopted=view.adopted,
        restarts=view.restarts,
        next_start=utc(view.next_start),
        error=view.error,
    )


def pipeline(overview: Overview) -> m.PipelineModel:
    return m.PipelineModel(**_overview(overview))


def _overview(overview: Overview) -> dict[str, Any]:
    return {
        "name": overview.name,
        "file": overview.file,
        "process": process(overview.process),
        "health": overview.health,
        "reasons": list(overview.reasons),
        "lag_seconds": overview.lag_seconds,
        "lag_bytes": overview.lag_bytes,
        "received_per_second": overview.received_per_second,
        "delivered_per_second": overview.delivered_per_second,
        "copied_per_second": overview.copied_per_second,
        "tables": overview.tables,
        "destinations": [asdict(destination) for destination in overview.destinations],
    }


def status(service: Service, file: PipelineFile) -> m.PipelineStatus:
    """Ask source, store, change log and destination; one that does not answer is a problem."""
    problems: list[str] = []
    source = log = None
    letters: dict[str, int] = {}
    if file.config is None:
        problems += [file.problem.message] if file.problem else []
    else:
        config, looks = file.config, service.looks(file)
        try:
            source = looks.source.get().to_json()
            # Of many tables the list is an answer of its own.
            source = {k: v for k, v in source.items() if k not in ("tables", "insert_only")}
        except PenstockError as error:
            problems.append(error.message)
        try:
            log = log_status(config)
        except PenstockError as error:
            problems.append(error.message)
        try:
            looks.tables.get()
        except PenstockError as error:
            problems.append(error.message)
        try:
            found = count_dead_letters(
                config.destination_type, config.destination_options, config.delivery
            )
            letters = dict(found)
        except PenstockError as error:
            problems.append(error.message)
    return m.PipelineStatus(
        **_overview(service.overview(file)),
        source=source,
        log=log,
        dead_letters=letters,
        problems=problems,
    )


def table(summary: TableSummary) -> m.TableModel:
    return m.TableModel(
        table=summary.name,
        oid=summary.oid,
        phase=summary.phase,
        since=utc(summary.since),
        lsn=None if summary.lsn is None else format_lsn(summary.lsn),
        reason=summary.reason,
        solution=summary.solution,
        next_try=utc(summary.next_try),
        wish=summary.wish,
        notes=list(summary.notes),
        copy_progress=None if summary.copy is None else m.CopyModel(**summary.copy.to_json()),
    )


def outcome(done: Outcome) -> m.OutcomeModel:
    return m.OutcomeModel(
        tables=[m.TableOutcomeModel(table=t.table, outcome=t.text) for t in done.tables],
        note=done.note,
    )


def job(view: JobView) -> m.JobModel:
    return m.JobModel(**asdict(view))


def matching_tables(
    tables: Sequence[TableSummary], search: str, phase: str | None
) -> list[TableSummary]:
    """Those whose name contains the text, upper and lower case alike."""
    wanted = search.casefold()
    return [
        table
        for table in tables
        if wanted in table.name.casefold() and (phase is None or table.phase == phase)
    ]
