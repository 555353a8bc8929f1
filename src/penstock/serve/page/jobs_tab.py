"""Checks with their remedies, and comparisons of source and destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from penstock.cadence import paced
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting
from penstock.serve.page.frame import repeat
from penstock.serve.page.words import clock_text
from penstock.serve.supervise.jobs import JobKind, JobView

_REFRESH_SECONDS = paced(1.0)
_MOST_ROWS = 500

# As `penstock verify` has them: option, label, least, most, what it is by itself.
_VERIFY_OPTIONS = (
    ("parallel", "Sessions on each side", 1, 64, 2),
    ("show", "Differing rows to name of each table", 1, 1000, 10),
    ("wait", "Seconds to wait for the destination", 0, 86_400, 600),
)

_RESULT_WORDS = {
    "passed": ("check_circle", "passed"),
    "failed": ("error", "failed"),
    "warning": ("warning", "warning"),
    "skipped": ("remove_circle", "skipped"),
    "equal": ("check_circle", "equal"),
    "different": ("error", "different"),
}


async def show_checks(person: Acting, file: PipelineFile) -> None:
    """What `penstock check` says."""
    text = "Looks at source, role, tables, log and destination."
    await _show(person, file, "check", "Check now", text, dict)


async def show_verification(person: Acting, file: PipelineFile) -> None:
    """What `penstock verify` says."""
    fields: dict[str, ui.number] = {}

    def options() -> dict[str, int | float]:
        return {name: int(field.value) for name, field in fields.items() if field.value is not None}

    text = "Compares every row of source and destination at one position, while the pipeline runs."
    if person.may_operate:
        with ui.row().classes("items-center gap-3"):
            for name, label, least, most, value in _VERIFY_OPTIONS:
                made = ui.number(label, value=value, min=least, max=most, precision=0)
                fields[name] = made.props("outlined dense").classes("w-60")
    await _show(person, file, "verify", "Verify now", text, options)


async def _show(
    person: Acting,
    file: PipelineFile,
    kind: JobKind,
    label: str,
    text: str,
    options: Callable[[], dict[str, int | float]],
) -> None:
    service = person.service

    async def start() -> None:
        chosen = options()
        if await person.act(lambda: service.start_job(person.actor, file, kind, chosen)):
            await look()

    async def cancel() -> None:
        running = shown[0]
        if running is not None:
            await person.act(lambda: service.cancel_job(person.actor, file, running.id))
            await look()

    with ui.row().classes("items-center gap-3"):
        if person.may_operate:
            ui.button(label, icon="play_arrow", on_click=start).props("no-caps outline")
        stop = ui.button("Cancel", icon="cancel", on_click=cancel).props("no-caps flat")
        stop.set_visibility(False)
        ui.label(text).classes("ps-soft")
    shown: list[JobView | None] = [None]
    place = ui.column().classes("w-full gap-2")
    with place:
        _show_job(None)

    async def look() -> None:
        """Outputs are read in a thread, and a report only once it is there."""
        job = await person.read(lambda: _latest(person, file, kind))
        if job is None or (shown[0] is not None and is_same(job, shown[0])):
            return
        whole = await person.read(lambda: service.job(file, job.id))
        if whole is not None:
            shown[0] = job
            stop.set_visibility(person.may_operate and whole.state == "running")
            place.clear()
            with place:
                _show_job(whole if person.may_operate else whole.without_rows())

    await look()
    repeat(_REFRESH_SECONDS, look)


def is_same(job: JobView, before: JobView) -> bool:
    """Whether a person would see the same."""
    return (job.id, job.state, job.done, job.of) == (
        before.id,
        before.state,
        before.done,
        before.of,
    )


def _latest(person: Acting, file: PipelineFile, kind: JobKind) -> JobView | None:
    of = (kind, file.destination)
    jobs = person.service.jobs.of(file.name)
    return next((job for job in jobs if (job.kind, job.destination) == of), None)


def _show_job(job: JobView | None) -> None:
    if job is None:
        ui.label("It has not run yet.").classes("ps-soft")
        return
    began = f"Started by {job.started_by} at {clock_text(job.began_at)}"
    if job.state == "running":
        with ui.row().classes("items-center gap-3"):
            ui.spinner(size="1.5rem").props('aria-hidden="true"')
            far = "" if job.of is None else f": {job.done} of {job.of} pieces"
            ui.label(f"{began}, under way{far}").props("role=status")
        if job.of:
            bar = ui.linear_progress((job.done or 0) / job.of, show_value=False)
            bar.props('aria-label="Progress"')
        return
    if job.report is None:
        ui.label(f"{began}: {job.state}.")
        if job.error:
            ui.label(job.error).classes("ps-note ps-note-bad")
        if job.remedy:
            ui.label(f"What to do: {job.remedy}").classes("ps-note")
        return
    if job.kind == "check":
        _show_results(job.report, began)
    else:
        _show_comparison(job.report, began)


def _show_results(results: list[dict[str, Any]], began: str) -> None:
    failed = sum(result["status"] == "failed" for result in results)
    verdict = f"{failed} of {len(results)} checks failed" if failed else "All checks passed"
    ui.label(f"{verdict}. {began}.").classes("font-semibold").props("role=status")
    for result in sorted(results, key=lambda result: result["status"] != "failed"):
        with ui.card().classes("ps-card q-pa-sm w-full").style("gap: .2rem"):
            with ui.row().classes("items-center gap-2"):
                status_badge(result["status"])
                ui.label(result["name"]).classes("font-semibold")
            ui.label(result["detail"]).classes("ps-soft ps-name")
            if result["remedy"]:
                ui.label(f"What to do: {result['remedy']}").classes("ps-note")


def _show_comparison(report: dict[str, Any], began: str) -> None:
    word = "Equal" if report["equal"] else "NOT EQUAL"
    count = len(report["tables"])
    ui.label(
        f"{word}: {count} tables, {report['rows']:,} rows at {report['lsn']}. {began}."
    ).classes("ps-number").props("role=status")
    tables = sorted(report["tables"], key=lambda table: table["equal"])
    rows = [
        {
            "table": table["source"],
            "result": _result(table),
            "rows": f"{table['source_rows']:,}",
            "detail": table["not_compared"] or table["skipped"] or _differences(table),
        }
        for table in tables[:_MOST_ROWS]
    ]
    columns = [
        {"name": key, "label": label, "field": key, "align": "left"}
        for key, label in (
            ("table", "Table"), ("result", "Result"), ("rows", "Rows"), ("detail", "What differs"),
        )
    ]  # fmt: skip
    shown = ui.table(columns=columns, rows=rows, row_key="table", pagination=50)
    shown.classes("ps-table w-full").props("flat wrap-cells")
    for broken in report["constraints"]:
        if broken["violations"]:
            text = f"{broken['kind']} {broken['name']} of {broken['table']} is violated"
            ui.label(text).classes("ps-note ps-note-bad")


def _result(table: dict[str, Any]) -> str:
    if table["not_compared"]:
        return "not compared"
    return "skipped" if table["skipped"] else "equal" if table["equal"] else "DIFFERENT"


def _differences(table: dict[str, Any]) -> str:
    found = [f"{entry['kind']}: {entry['row']}" for entry in table["differences"][:5]]
    return "; ".join(found)


def status_badge(status: str) -> None:
    icon, word = _RESULT_WORDS.get(status, ("help", status))
    with ui.row().classes(f"ps-badge ps-{status}"):
        ui.icon(icon).props('aria-hidden="true"')
        ui.label(word)
