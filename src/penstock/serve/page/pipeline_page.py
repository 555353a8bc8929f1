"""One pipeline: its state, the flow of its rows, and tabs for all there is to see and to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from nicegui import run, ui

from penstock.cadence import paced
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.model.errors import PenstockError
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm
from penstock.serve.page.charts_tab import show_charts
from penstock.serve.page.configuration_tab import show_configuration
from penstock.serve.page.dead_letters_tab import show_dead_letters
from penstock.serve.page.events_tab import show_events
from penstock.serve.page.flow import make_flow
from penstock.serve.page.frame import badge, heading, note, repeat
from penstock.serve.page.jobs_tab import show_checks, show_verification
from penstock.serve.page.operations_tab import show_operations
from penstock.serve.page.schema_tab import show_schema
from penstock.serve.page.tables_tab import show_tables
from penstock.serve.page.transform_tab import show_transform
from penstock.serve.page.webhooks_tab import show_webhooks
from penstock.serve.page.words import HEALTH_WORDS
from penstock.serve.service import Overview

_REFRESH_SECONDS = paced(2.0)

Show = Callable[[Acting, PipelineFile], Awaitable[None]]

TABS: dict[str, tuple[str, str, Show]] = {
    "tables": ("Tables", "table_rows", show_tables),
    "charts": ("Charts", "show_chart", show_charts),
    "schema": ("Schema", "difference", show_schema),
    "dead-letters": ("Dead letters", "mail", show_dead_letters),
    "webhooks": ("Webhooks", "webhook", show_webhooks),
    "transform": ("Transform", "transform", show_transform),
    "events": ("Events", "list_alt", show_events),
    "checks": ("Checks", "fact_check", show_checks),
    "verify": ("Verify", "balance", show_verification),
    "operations": ("Operations", "pending_actions", show_operations),
    "configuration": ("Configuration", "settings", show_configuration),
}


# What is about the pipeline as a whole, whichever destination is chosen.
_OF_ALL = ("events", "configuration", "webhooks")


def tabs_of(file: PipelineFile) -> list[str]:
    """Those that a pipeline has something for."""
    without = set()
    if all(view.destination_type != "webhooks" for view in file.views):
        without.add("webhooks")
    if all(view.transform is None for view in file.views):
        without.add("transform")
    return [name for name in TABS if name not in without]


async def show_pipeline(
    person: Acting, file: PipelineFile, tab: str, destination: str | None
) -> None:
    """``tab`` is the one to show first, and ``destination`` the one of several that it is about."""
    _show_head(person, file)
    refresh_flow = make_flow(person, file)
    chosen = _make_choice(file, destination)
    offered = tabs_of(file)
    with (
        ui.tabs()
        .classes("ps-tabs w-full")
        .props("align=left inline-label outside-arrows mobile-arrows no-caps dense") as tabs
    ):
        for name in offered:
            label, icon, _show = TABS[name]
            ui.tab(name, label=label, icon=icon)
    panel = ui.column().classes("w-full").props('role="tabpanel"')

    async def show() -> None:
        panel.clear()
        name = str(tabs.value)
        of = file if chosen is None or name in _OF_ALL else file.only(str(chosen.value))
        with panel:
            await TABS[name][2](person, of)

    tabs.set_value(tab if tab in offered else "tables")
    tabs.on_value_change(show)
    if chosen is not None:
        chosen.on_value_change(show)
    await show()

    async def refresh() -> None:
        config = file.config
        if isinstance(config, KafkaPipelineConfig):
            # How far topics are is nobody's metric: the brokers are asked.
            with suppress(PenstockError):
                await run.io_bound(person.service.looks(config).source.get)
        refresh_flow(person.service.overview(file))

    refresh_flow(person.service.overview(file))
    repeat(_REFRESH_SECONDS, refresh)


def _make_choice(file: PipelineFile, destination: str | None) -> ui.select | None:
    """Which of several destinations the tabs are about; None where there is no choice."""
    if len(file.views) < 2:
        return None
    names = [view.destination_name for view in file.views]
    value = destination if destination in names else names[0]
    choice = ui.select(names, value=value, label="Destination").props("outlined dense")
    return choice.classes("w-60")


def _show_head(person: Acting, file: PipelineFile) -> None:
    service = person.service

    async def start() -> None:
        if await person.act(lambda: service.start_pipeline(person.actor, file)):
            ui.notify(f"{file.name} is started.")
            head.refresh()

    async def stop() -> None:
        text = "What is under way is finished first. It stays stopped until somebody starts it."
        if not await confirm(f"Stop {file.name}?", text, "Stop"):
            return
        if await person.act(lambda: service.stop_pipeline(person.actor, file)):
            ui.notify(f"{file.name} is being stopped.")
            head.refresh()

    async def stop_now() -> None:
        text = (
            "What is under way is given up, and done again by the next start. It stays stopped "
            "until somebody starts it."
        )
        if not await confirm(f"Stop {file.name} now?", text, "Stop now"):
            return
        if await person.act(lambda: service.stop_pipeline(person.actor, file, now=True)):
            ui.notify(f"{file.name} is being stopped.")
            head.refresh()

    @ui.refreshable
    def head() -> None:
        view = service.overview(file)
        shown[:] = [_signature(view)]
        with ui.row().classes("w-full items-center justify-between gap-3"):
            with ui.row().classes("items-center gap-3"):
                heading(file.name, 1)
                badge(HEALTH_WORDS, view.health)
                ui.label(_process_text(view)).classes("ps-soft text-sm")
            if person.may_operate:
                with ui.row().classes("gap-2"):
                    running = view.process.pid is not None
                    begin = ui.button("Start", icon="play_arrow", on_click=start)
                    begin.props("no-caps outline").set_enabled(not running)
                    end = ui.button("Stop", icon="stop", on_click=stop)
                    end.props("no-caps outline").set_enabled(running)
                    at_once = ui.button("Stop now", icon="bolt", on_click=stop_now)
                    at_once.props("no-caps flat").set_enabled(running)
        for reason in view.reasons[:5]:
            note(reason, bad=view.health == "failing")

    shown: list[object] = []
    head()

    def look() -> None:
        if shown != [_signature(service.overview(file))]:
            head.refresh()

    repeat(_REFRESH_SECONDS, look)


def _signature(view: Overview) -> object:
    return view.health, view.reasons, view.process.state, view.process.pid


def _process_text(view: Overview) -> str:
    process = view.process
    if process.pid is None:
        return "" if process.next_start is None else "is started again in a moment"
    adopted = ", adopted" if process.adopted else ""
    return f"process {process.pid}{adopted}"
