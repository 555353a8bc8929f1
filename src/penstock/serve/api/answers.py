"""What the service knows, as the models of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.status import read_log_status
from penstock.config import PipelineConfig
from penstock.destination.registry import count_dead_letters
from penstock.model.errors import PenstockError
from penstock.model.lsn import format_lsn
from penstock.operations.log_readers import unnamed_readers
from penstock.operations.outcome import Outcome
from penstock.operations.table_summaries import TableSummary
from penstock.serve.api import models as m
from penstock.serve.catalogue import PipelineFile
from penstock.serve.service import Overview, Service, utc
from penstock.serve.supervise.jobs import JobView
from penstock.serve.supervise.supervisor import ProcessView

T = TypeVar("T")


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
    """Ask source, store, change log and destinations; one that does not answer is a problem."""
    problems = [file.problem.message] if file.problem is not None else []

    def asked(ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except PenstockError as error:
            problems.append(error.message)
            return None

    source = log = None
    letters: dict[str, dict[str, int]] = {}
    unnamed: list[str] = []
    config = file.config
    if config is not None:
        source = asked(lambda: service.looks(config).source.get().to_json())
        log = asked(lambda: read_log_status(ChangeLog.of(config.change_log)))
        asked(lambda: service.tables(file))
        for view in file.views:
            found = asked(partial(_count_letters, view))
            letters[view.destination_name or view.name] = dict(found or {})
        unnamed = [] if log is None else unnamed_readers(config, log)
    return m.PipelineStatus(
        **_overview(service.overview(file)),
        # Of many tables the list is an answer of its own.
        source=source and {k: v for k, v in source.items() if k not in ("tables", "insert_only")},
        log=None if log is None else log.to_json(),
        dead_letters=letters,
        unnamed_readers=unnamed,
        problems=list(dict.fromkeys(problems)),
    )


def _count_letters(view: PipelineConfig) -> Mapping[str, int]:
    return count_dead_letters(view.destination_type, view.destination_options, view.delivery)


def table(summary: TableSummary) -> m.TableModel:
    return m.TableModel(
        table=summary.name,
        destination=summary.destination or None,
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
