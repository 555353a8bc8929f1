"""Everything that can be seen and done, for the API and for the page alike."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.config import PipelineConfig
from penstock.metrics.of_many import NOT_BEGUN
from penstock.model.errors import PenstockError
from penstock.operations.dead_letters import discard_letters, retry_letters
from penstock.operations.outcome import Outcome
from penstock.operations.table_actions import OF_ALL_DESTINATIONS, TABLE_ACTIONS
from penstock.operations.table_summaries import TableSummary
from penstock.operations.transform_rules import accepted_rules
from penstock.operations.webhook_subscriptions import opened_subscriptions
from penstock.serve.catalogue import Catalogue, PipelineFile
from penstock.serve.observe.events import Events
from penstock.serve.observe.looks import Looks, PipelineLooks
from penstock.serve.observe.sampler import Sampler
from penstock.serve.observe.series import Point
from penstock.serve.safety.audit import Audit
from penstock.serve.safety.identity import Identity
from penstock.serve.state_folder import StateFolder
from penstock.serve.supervise.jobs import JobKind, Jobs, JobView
from penstock.serve.supervise.supervisor import ProcessView, RunSupervisor
from penstock.source.postgres.source_status import SourceStatus

if TYPE_CHECKING:
    # Loaded by those alone who have such a destination.
    from penstock.destination.webhooks.options import WebhooksOptions
    from penstock.destination.webhooks.subscriptions import Subscriptions

T = TypeVar("T")

_log = logging.getLogger(__name__)


class UnknownPipeline(PenstockError):
    """No pipeline of that name is served."""


class UnknownJob(PenstockError):
    """The pipeline has no operation of that id."""


class NotAllowed(PenstockError):
    """Who asks may not see it."""


@dataclass(frozen=True)
class Actor:
    """Who asks for a change, and from where."""

    identity: Identity
    address: str


@dataclass(frozen=True)
class DestinationOverview:
    """One of a pipeline's destinations. ``name`` can be given back to a request or a command; the
    only one of a file has the pipeline's name.
    """

    name: str
    type: str
    health: str
    reasons: tuple[str, ...]
    lag_seconds: float | None
    lag_bytes: int | None
    delivered_per_second: float | None
    copied_per_second: float | None
    tables: dict[str, int]


@dataclass(frozen=True)
class Overview:
    """A pipeline at a glance. Numbers are None where nobody knows them at the moment."""

    name: str
    file: str
    process: ProcessView
    health: str
    reasons: tuple[str, ...]
    lag_seconds: float | None
    lag_bytes: int | None
    received_per_second: float | None
    delivered_per_second: float | None
    copied_per_second: float | None
    tables: dict[str, int]
    destinations: tuple[DestinationOverview, ...]


class Service:
    """Made once for each server. May be used by any thread."""

    def __init__(self, places: Sequence[Path], folder: StateFolder, *, starts: bool = True) -> None:
        self.folder = folder
        self.catalogue = Catalogue(places)
        self.events = Events()
        self.audit = Audit(folder.audit, folder.refusals)
        self.supervisor = RunSupervisor(self.catalogue, folder, self.events, starts=starts)
        self.sampler = Sampler(self.catalogue, self.supervisor, folder)
        self.jobs = Jobs(folder.jobs)
        self._looks = Looks()
        # Of two who start and destroy one pipeline at a time, the second one sees the first.
        self._beginning = threading.Lock()

    def start(self) -> None:
        self.supervisor.start()
        self.sampler.start()

    def stop(self) -> None:
        """Stop looking; pipelines and operations go on."""
        self.sampler.stop()
        self.supervisor.stop()
        self._looks.close()
        self.folder.give_back()

    # -- what is there ---------------------------------------------------------------------------

    def pipeline(self, name: str) -> PipelineFile:
        """Raises UnknownPipeline."""
        file = self.catalogue.get(name)
        if file is None:
            raise UnknownPipeline(
                f"No pipeline {name} is served here.",
                remedy="GET /v1/pipelines lists those that are.",
            )
        return file

    def looks(self, view: PipelineConfig) -> PipelineLooks:
        return self._looks.of(view)

    def tables(self, file: PipelineFile) -> list[TableSummary]:
        """Those of all its destinations, by name. Raises PenstockError where the store does not
        answer.
        """
        file.require_config()
        found = [self.looks(view).tables.get() for view in file.views]
        if len(found) == 1:
            return found[0]
        tables = [table for each in found for table in each]
        return sorted(tables, key=lambda table: (table.name, table.destination))

    def overview(self, file: PipelineFile) -> Overview:
        """From what is known: asks nobody, so that a source which is away delays no list."""
        process = self.supervisor.view(file)
        summary = self.sampler.summary(file.name) or {}
        latest: Point | None = self.sampler.series(file.name).latest
        rates = latest.values if latest is not None else {}
        health, reasons = _health(process, summary)
        if file.problem is not None and process.pid is not None:
            # What runs goes on with what it has read; the next start would fail.
            reasons = (file.problem.message, *reasons)
        lag_bytes = summary.get("lag_bytes")
        if lag_bytes is None and file.config is not None:
            lag_bytes = self._slot_lag(file.config)
        return Overview(
            file.name,
            str(file.path),
            process,
            health,
            reasons,
            summary.get("lag_seconds"),
            None if lag_bytes is None else int(lag_bytes),
            rates.get("received_per_second"),
            rates.get("delivered_per_second"),
            rates.get("copied_per_second"),
            dict(summary.get("tables", {})) or self._known_phases(file.views),
            tuple(self._destination(file, view, process) for view in file.views),
        )

    def _destination(
        self, file: PipelineFile, view: PipelineConfig, process: ProcessView
    ) -> DestinationOverview:
        name = view.destination_name
        summary = self.sampler.summary(file.name, name)
        health, reasons = _health(process, summary or {})
        if summary is None and view.is_one_of_many:
            # The pipeline says of a destination without a process why it has none.
            whole = self.sampler.summary(file.name) or {}
            with suppress(KeyError, TypeError):
                said = whole["health"]["destinations"][name]["reasons"]
                health, reasons = _unwell(said), tuple(said)
        latest = self.sampler.series(file.name, name).latest
        rates = latest.values if latest is not None else {}
        known = summary or {}
        lag_bytes = known.get("lag_bytes")
        if lag_bytes is None and not view.is_one_of_many:
            lag_bytes = self._slot_lag(view)
        return DestinationOverview(
            name or view.name,
            view.destination_type,
            health,
            reasons,
            known.get("lag_seconds"),
            None if lag_bytes is None else int(lag_bytes),
            rates.get("delivered_per_second"),
            rates.get("copied_per_second"),
            dict(known.get("tables", {})) or self._known_phases([view]),
        )

    def _slot_lag(self, view: PipelineConfig) -> int | None:
        """What the source keeps for the pipeline, as far as somebody asked lately. Topics are kept
        for nobody, and have no such bytes.
        """
        source = self._looks.of(view).source.known
        return source.lag_bytes if isinstance(source, SourceStatus) else None

    def _known_phases(self, views: Iterable[PipelineConfig]) -> dict[str, int]:
        known = (self._looks.of(view).tables.known or () for view in views)
        return dict(Counter(table.phase for tables in known for table in tables))

    # -- what can be done ------------------------------------------------------------------------

    def start_pipeline(self, actor: Actor, file: PipelineFile) -> ProcessView:
        def start() -> ProcessView:
            with self._beginning:
                if any(j.state == "running" and _ends_it(j) for j in self.jobs.of(file.name)):
                    raise PenstockError(
                        f"Pipeline {file.name} is being destroyed.",
                        remedy="Start it once that has ended, if it is to begin anew.",
                    )
                return self.supervisor.start_pipeline(file)

        return self._command(actor, file, "start", start)

    def stop_pipeline(self, actor: Actor, file: PipelineFile, *, now: bool = False) -> ProcessView:
        return self._command(
            actor, file, "stop", lambda: self.supervisor.stop_pipeline(file, now=now), now=now
        )

    def tables_action(
        self, actor: Actor, file: PipelineFile, action: str, tables: Sequence[str]
    ) -> Outcome:
        """One of TABLE_ACTIONS, of the destination that ``file`` is narrowed to, unless it is the
        affair of all.
        """
        config = file.require_config()
        if action not in OF_ALL_DESTINATIONS:
            config = file.only(file.destination or None).require_config()

        def act() -> Outcome:
            try:
                return TABLE_ACTIONS[action](config, file.path, tables)
            finally:
                for view in self.pipeline(file.name).views:
                    self._looks.of(view).tables.forget()

        return self._command(actor, file, f"tables {action}", act, tables=list(tables))

    def discard(self, actor: Actor, file: PipelineFile, letters: Sequence[int]) -> Sequence[int]:
        config = file.only(file.destination or None).require_config()
        return self._command(
            actor,
            file,
            "dead-letters discard",
            lambda: discard_letters(config, letters),
            letters=list(letters),
        )

    def retry_letters(self, actor: Actor, file: PipelineFile, letters: Sequence[int]) -> Outcome:
        config = file.only(file.destination or None).require_config()

        def act() -> Outcome:
            try:
                return retry_letters(config, file.path, letters)
            finally:
                self._looks.of(config).tables.forget()

        return self._command(actor, file, "dead-letters retry", act, letters=list(letters))

    def accept_rules(self, actor: Actor, file: PipelineFile) -> Sequence[str]:
        config = file.only(file.destination or None).require_config()
        return self._command(actor, file, "transform accept", lambda: accepted_rules(config))

    def on_subscriptions(
        self,
        actor: Actor,
        file: PipelineFile,
        action: str,
        act: Callable[[WebhooksOptions, Subscriptions], T],
        **fields: Any,
    ) -> T:
        """Do something to subscriptions of the destination webhooks."""

        def opened() -> T:
            file.require_config()
            with opened_subscriptions(file.views, file.path) as (options, subscriptions):
                return act(options, subscriptions)

        return self._command(actor, file, f"webhooks {action}", opened, **fields)

    def start_job(
        self, actor: Actor, file: PipelineFile, kind: JobKind, options: dict[str, int | float]
    ) -> JobView:
        def start() -> JobView:
            with self._beginning:
                if kind == "destroy" and not file.destination:
                    self.supervisor.keep_stopped(file)
                return self.jobs.start(file, kind, options, actor.identity.name)

        return self._command(actor, file, kind, start, **options)

    def cancel_job(self, actor: Actor, file: PipelineFile, job_id: str) -> JobView:
        """Raises UnknownJob."""

        def cancel() -> JobView:
            job = self.jobs.cancel(file.name, job_id)
            if job is None:
                raise unknown_job(file.name, job_id)
            return job

        return self._command(actor, file, "cancel", cancel, job=job_id)

    def job(self, file: PipelineFile, job_id: str) -> JobView:
        """Raises UnknownJob."""
        job = self.jobs.get(file.name, job_id)
        if job is None:
            raise unknown_job(file.name, job_id)
        return job

    def _command(
        self, actor: Actor, file: PipelineFile, action: str, act: Callable[[], T], **fields: Any
    ) -> T:
        """Do it, and write down who did what: that it begins before anything is done, and what
        became of it, also where it failed. A ``begun`` without an end is of a server that died.
        """
        who, outcome = actor.identity, "failed"
        if file.destination:
            fields["destination"] = file.destination
        fields = {"pipeline": file.name, "command": secrets.token_hex(4), **fields}

        def note(outcome: str) -> None:
            self.audit.command(who.name, who.role, actor.address, action, outcome=outcome, **fields)

        note("begun")
        try:
            done = act()
            outcome = "done"
            return done
        except PenstockError as error:
            outcome = f"refused: {error.message}"
            raise
        finally:
            note(outcome)
            text = f"{who.name}: {action}" + ("" if outcome == "done" else f" ({outcome})")
            level = "info" if outcome == "done" else "warning"
            self.events.tell(file.name, "command", text, level=level)


def unknown_job(pipeline: str, job_id: str) -> UnknownJob:
    return UnknownJob(
        f"Pipeline {pipeline} has no operation {job_id[:40]}.",
        remedy="The last twenty are kept; GET …/jobs lists them.",
    )


def _ends_it(job: JobView) -> bool:
    """Whether it takes the whole pipeline away."""
    return job.kind == "destroy" and not job.destination


def _health(process: ProcessView, summary: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """One word, and why."""
    if process.state in ("invalid", "failed", "waiting"):
        return "failing", (process.error,) if process.error else ()
    if process.state == "stopped":
        return "stopped", ()
    if not summary:
        return "starting", ("it has not said anything yet",) if process.metrics else ()
    with suppress(KeyError, TypeError):
        health, ready = summary["health"], summary["ready"]
        if health["reasons"]:
            return _unwell(health["reasons"]), tuple(health["reasons"])
        if ready["reasons"]:
            return "settling", tuple(ready["reasons"])
    return "healthy", ()


def _unwell(reasons: Sequence[str]) -> str:
    """Destinations that are only being started are not failing."""
    return "starting" if all(reason.endswith(NOT_BEGUN) for reason in reasons) else "failing"


def utc(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds")
