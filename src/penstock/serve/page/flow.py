"""The way of the rows: source, change log, destinations, with rates and lags between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nicegui import ui

from penstock.config import PipelineConfig
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.model.topic_status import TopicStatus
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting
from penstock.serve.page.words import HEALTH_WORDS, UNKNOWN, rate_text, seconds_text, size_text
from penstock.serve.service import DestinationOverview, Overview


@dataclass
class _Station:
    """A card with one number that counts, and lines below it."""

    number: ui.label
    lines: list[ui.label]

    def show(self, number: str, *lines: str) -> None:
        self.number.set_text(number)
        for label, text in zip(self.lines, lines, strict=True):
            label.set_text(text)


def _station(icon: str, title: str, of: str) -> _Station:
    with ui.card().classes("ps-card q-pa-md").style("gap: .2rem"):
        with ui.row().classes("items-center gap-2 no-wrap"):
            ui.icon(icon).classes("text-xl").props('aria-hidden="true"')
            ui.label(title).classes("font-semibold")
        number = ui.label(UNKNOWN).classes("ps-number")
        ui.label(of).classes("ps-soft text-sm")
        lines = [ui.label("").classes("ps-soft text-sm ps-name") for _ in range(2)]
    return _Station(number, lines)


def _arrow(text: str) -> ui.label:
    with ui.column().classes("ps-arrow items-center").style("gap: 0"):
        rate = ui.label(UNKNOWN).classes("ps-rate")
        ui.icon("arrow_forward").props('aria-hidden="true"')
        ui.label(text).classes("text-sm")
    return rate


def make_flow(person: Acting, file: PipelineFile) -> Callable[[Overview], None]:
    """Shows the flow; the function that is returned brings it up to date."""
    config = file.config
    reads_topics = isinstance(config, KafkaPipelineConfig)
    with ui.element("section").classes("ps-flow").props('aria-label="Flow of rows"'):
        of = "messages to be read" if reads_topics else "WAL that it keeps for the slot"
        source = _station("storage", "Source: kafka" if reads_topics else "Source", of)
        received = _arrow("captured")
        log = _station("segment", "Change log", "waiting to be delivered, or kept")
        delivered = _arrow("delivered")
        targets = _targets(file)

    def refresh(view: Overview) -> None:
        said = person.service.sampler.summary(file.name) or {}
        received.set_text(rate_text(view.received_per_second))
        rate = view.delivered_per_second
        delivered.set_text(rate_text(rate))
        streaming = said.get("capture_streaming")
        capture = "" if not said else "capture reads" if streaming else "capture does not read"
        kept = size_text(said.get("unconfirmed_bytes"))
        if reads_topics and config is not None:
            kept = _messages(person.service.looks(config).source.known)
        source.show(kept, _place(config), capture)
        folder = config.change_log.path if config else ""
        log.show(size_text(said.get("log_bytes")), folder, _buffered(said.get("buffered_bytes")))
        for target, destination in zip(targets, view.destinations, strict=False):
            _show_target(target, destination, alone=len(targets) == 1)

    return refresh


def _place(config: PipelineConfig | None) -> str:
    """Where the rows come from."""
    if config is None:
        return ""
    if isinstance(config, KafkaPipelineConfig):
        return config.source.brokers
    return str(config.source.url).split("@")[-1].removeprefix("postgresql://")


def _messages(source: object) -> str:
    if not isinstance(source, TopicStatus):
        return UNKNOWN
    return f"{sum(source.behind.values()):,}"


def _targets(file: PipelineFile) -> list[_Station]:
    """One station for each destination, one below the other."""
    of = "how old what it holds is"
    if len(file.views) < 2:
        kind = "".join(view.destination_type for view in file.views)
        return [_station("output", f"Destination: {kind}", of)]
    with ui.column().classes("items-stretch").style("gap: .5rem"):
        return [
            _station("output", f"{view.destination_name}: {view.destination_type}", of)
            for view in file.views
        ]


def _show_target(target: _Station, view: DestinationOverview, *, alone: bool) -> None:
    copied = view.copied_per_second or 0.0
    doing = f"copying {rate_text(copied)}" if copied else ""
    if not alone:
        # What stops one of several holds back no other: it is said where it happens.
        doing = doing or f"{HEALTH_WORDS[view.health][1]}, {rate_text(view.delivered_per_second)}"
    behind = f"{size_text(view.lag_bytes)} of WAL behind"
    target.show(seconds_text(view.lag_seconds), behind, doing)


def _buffered(size: float | None) -> str:
    return f"{size_text(size)} in capture's memory" if size else ""
