"""Long operations on a pipeline: those that prepare and copy are begun here, all are listed."""

from __future__ import annotations

from nicegui import ui

from penstock.cadence import paced
from penstock.serve.api.job_routes import job_target
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm
from penstock.serve.page.frame import repeat
from penstock.serve.page.jobs_tab import is_same
from penstock.serve.page.words import clock_text
from penstock.serve.supervise.jobs import JobKind, JobView

_REFRESH_SECONDS = paced(1.0)
_MOST_SAID = 4_000

_OFFERED: tuple[tuple[JobKind, str, str, str], ...] = (
    (
        "init",
        "Prepare the source",
        "build",
        "Publication and slot are made, as by a start. The source keeps its WAL from then on.",
    ),
    (
        "snapshot",
        "Copy without following",
        "content_copy",
        "All tables are copied once, as of one moment. The pipeline has to be stopped.",
    ),
)
"""What is begun from here: operation, label, icon, and what is said before it is done."""


async def show_operations(person: Acting, file: PipelineFile) -> None:
    """Refreshes by itself."""
    service = person.service

    async def begin(kind: JobKind, label: str, text: str) -> None:
        if not await confirm(f"{label}: {file.name}?", text, label):
            return
        destination = file.destination or None
        of = await person.read(
            lambda: job_target(file, kind, None if kind == "init" else destination)
        )
        if of is not None:
            await person.act(lambda: service.start_job(person.actor, of, kind, {}))
            await look()

    async def cancel(job: JobView) -> None:
        await person.act(lambda: service.cancel_job(person.actor, file, job.id))
        await look()

    if person.may_operate:
        with ui.row().classes("gap-2"):
            for kind, label, icon, text in _OFFERED:
                button = ui.button(label, icon=icon).props("no-caps outline")
                button.on_click(lambda k=kind, n=label, t=text: begin(k, n, t))
    place = ui.column().classes("w-full gap-2")
    with place:
        ui.label("There were none yet.").classes("ps-soft")
    shown: list[JobView] = []

    async def look() -> None:
        jobs = await person.read(lambda: service.jobs.of(file.name))
        if not jobs or (len(jobs) == len(shown) and all(map(is_same, jobs, shown))):
            return
        said = await person.read(
            lambda: {job.id: service.job(file, job.id).said for job in jobs if job.passed is None}
        )
        shown[:] = jobs
        place.clear()
        with place:
            for job in jobs:
                _show(job, (said or {}).get(job.id, ""))
                if job.state == "running" and person.may_operate:
                    stop = ui.button("Cancel", icon="cancel").props("no-caps flat")
                    stop.on_click(lambda job=job: cancel(job))

    await look()
    repeat(_REFRESH_SECONDS, look)


def _show(job: JobView, said: str) -> None:
    of = f" of {job.destination}" if job.destination else ""
    with ui.card().classes("ps-card q-pa-sm w-full").style("gap: .2rem"):
        ui.label(f"{job.kind}{of}: {job.state}").classes("font-semibold").props("role=status")
        ui.label(f"Started by {job.started_by} at {clock_text(job.began_at)}").classes("ps-soft")
        if job.error:
            ui.label(job.error).classes("ps-note ps-note-bad")
        if job.remedy:
            ui.label(f"What to do: {job.remedy}").classes("ps-note")
        if said.strip():
            ui.label(said.strip()[-_MOST_SAID:]).classes("ps-mono")
