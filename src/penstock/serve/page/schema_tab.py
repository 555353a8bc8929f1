"""How a table changed, as differences that can be read."""

from __future__ import annotations

from nicegui import run, ui

from penstock.model.errors import PenstockError
from penstock.operations.schema_history import schema_history
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting

_MOST_NAMES = 2_000


async def show_schema(person: Acting, file: PipelineFile) -> None:
    """A table is chosen, then its versions are shown, newest first."""
    config = file.config
    tables = None
    if config is not None:
        tables = await person.read(lambda: person.service.tables(file))
    if config is None or tables is None:
        ui.label("The tables are not known.").classes("ps-soft")
        return
    names = [table.name for table in tables[:_MOST_NAMES]]
    chosen = ui.select(names, label="Table", with_input=True).props("outlined dense")
    chosen.classes("w-96 max-w-full")
    shown = ui.column().classes("w-full gap-2")

    async def show() -> None:
        shown.clear()
        if not chosen.value:
            return
        try:
            versions = await run.io_bound(lambda: schema_history(config, str(chosen.value)))
        except PenstockError as error:
            with shown:
                ui.label(error.message).classes("ps-note ps-note-bad")
            return
        with shown:
            for number, version in reversed(list(enumerate(versions or [], start=1))):
                with ui.card().classes("ps-card q-pa-md w-full").style("gap: .25rem"):
                    ui.label(f"Version {number}, from {version['lsn']} on").classes("font-semibold")
                    for change in version["changes"]:
                        _show_change(change, first=number == 1)

    chosen.on_value_change(show)
    if names:
        chosen.set_value(names[0])


def _show_change(change: str, *, first: bool) -> None:
    """A sign before it: nobody has to tell colours apart."""
    words = change.lower()
    if first or "added" in words or "new" in words:
        sign, kind = "+", "ps-added"
    elif "dropped" in words or "removed" in words:
        sign, kind = "−", "ps-removed"  # noqa: RUF001 (a minus)
    else:
        sign, kind = "~", ""
    ui.label(f"{sign} {change}").classes(f"ps-mono {kind}")
