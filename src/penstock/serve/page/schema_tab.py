"""How a table changed, as differences that can be read."""

from __future__ import annotations

from nicegui import ui

from penstock.operations.schema_history import schema_history
from penstock.serve.api.answers import matching_tables
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting

_MOST_NAMES = 100


async def show_schema(person: Acting, file: PipelineFile) -> None:
    """A table is looked for and chosen, then its versions are shown, newest first."""
    config = file.config
    tables = None
    if config is not None:
        tables = await person.read(lambda: person.service.tables(file))
    if config is None or tables is None:
        ui.label("The tables are not known.").classes("ps-soft")
        return
    with ui.row().classes("w-full items-center gap-2"):
        search = ui.input("Search tables").props("outlined dense clearable debounce=250")
        names = [table.name for table in tables[:_MOST_NAMES]]
        chosen = ui.select(names, label="Table").props("outlined dense")
        chosen.classes("w-96 max-w-full")
        count = ui.label(_found(len(tables))).classes("ps-soft")
    shown = ui.column().classes("w-full gap-2")

    async def show() -> None:
        shown.clear()
        if not chosen.value:
            return
        versions = await person.read(lambda: schema_history(config, str(chosen.value)))
        with shown:
            for number, version in reversed(list(enumerate(versions or [], start=1))):
                with ui.card().classes("ps-card q-pa-md w-full").style("gap: .25rem"):
                    ui.label(f"Version {number}, from {version['lsn']} on").classes("font-semibold")
                    for change in version["changes"]:
                        _show_change(change, first=number == 1)

    async def look() -> None:
        now = await person.read(lambda: person.service.tables(file))
        found = matching_tables(now or [], search.value or "", None)
        names = [table.name for table in found[:_MOST_NAMES]]
        count.set_text(_found(len(found)))
        chosen.set_options(names, value=names[0] if names else None)

    search.on_value_change(look)
    chosen.on_value_change(show)
    if names:
        chosen.set_value(names[0])


def _found(count: int) -> str:
    if count > _MOST_NAMES:
        return f"{count:,} tables, the first {_MOST_NAMES} to choose from: search for others"
    return f"{count:,} tables"


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
