"""What the pipeline logged, and what was done to it, as it comes."""

from __future__ import annotations

from nicegui import ui

from penstock.cadence import paced
from penstock.serve.catalogue import PipelineFile
from penstock.serve.observe.events import Event
from penstock.serve.page.acting import Acting
from penstock.serve.page.frame import repeat
from penstock.serve.page.words import clock_text

_REFRESH_SECONDS = paced(2.0)
_MOST_LINES = 300


async def show_events(person: Acting, file: PipelineFile) -> None:
    """Newest last; new ones are added at the end."""
    events = person.service.events
    log = ui.log(max_lines=_MOST_LINES).classes("w-full h-96 ps-card ps-mono")
    log.props('role=log aria-label="Events" tabindex=0')
    last = [0]

    def refresh() -> None:
        for event in events.latest(file.name, after=last[0], most=_MOST_LINES):
            last[0] = event.number
            log.push(_line(event))

    refresh()
    repeat(_REFRESH_SECONDS, refresh)


def _line(event: Event) -> str:
    level = "" if event.level == "info" else f"{event.level.upper()}: "
    return f"{clock_text(event.at)}  {level}{event.message}"
