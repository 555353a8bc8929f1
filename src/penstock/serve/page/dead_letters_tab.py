"""Rows that the destination refused: looked at, discarded, or brought again by a new copy."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.operations.dead_letters import list_letters
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm
from penstock.serve.page.frame import make_selectable

_MOST = 200

_COLUMNS = [
    {"name": "id", "label": "Id", "field": "id", "align": "left"},
    {"name": "table", "label": "Table", "field": "table", "align": "left"},
    {"name": "op", "label": "Change", "field": "op", "align": "left"},
    {"name": "lsn", "label": "At", "field": "lsn", "align": "left"},
    {"name": "cause", "label": "Why it was refused", "field": "cause", "align": "left"},
    {"name": "values", "label": "Values", "field": "values", "align": "left"},
]


async def show_dead_letters(person: Acting, file: PipelineFile) -> None:
    config = file.config
    if config is None:
        ui.label("The pipeline file cannot be used.").classes("ps-soft")
        return
    if not person.may_operate:
        ui.label("Refused rows have values: they are shown to the role operate.").classes("ps-soft")
        return
    with ui.row().classes("items-center gap-2"):
        again = ui.button("Look again", icon="refresh").props("no-caps flat")
        discard = ui.button("Discard", icon="delete").props("no-caps flat")
        retry = ui.button("Copy their tables anew", icon="sync").props("no-caps flat")
    table = ui.table(columns=_COLUMNS, rows=[], row_key="id", pagination=20)
    table.classes("ps-table w-full").props("flat wrap-cells")
    table.add_slot(
        "no-data", '<div class="q-pa-md">No refused rows are kept at the destination.</div>'
    )
    make_selectable(table, "id")

    async def refresh() -> None:
        letters = await person.read(lambda: list_letters(config, most=_MOST))
        table.rows = [
            {
                "id": letter.id,
                "table": letter.table,
                "op": letter.op,
                "lsn": letter.commit_lsn,
                "cause": letter.cause[:500],
                "values": _values(letter.values),
            }
            for letter in letters or ()
        ]
        # Those that are still there stay chosen.
        kept = {row["id"] for row in table.selected}
        table.selected = [row for row in table.rows if row["id"] in kept]

    async def throw_away() -> None:
        ids = [row["id"] for row in table.selected]
        if not ids:
            ui.notify("Choose rows first.")
            return
        text = "They are removed for good; the destination goes on without these rows."
        if await confirm(f"Discard {len(ids)} refused rows?", text, "Discard"):
            gone = await person.act(lambda: person.service.discard(person.actor, file, ids))
            if gone is not None:
                ui.notify(f"Discarded {len(gone)}.")
            await refresh()

    async def copy_anew() -> None:
        ids = [row["id"] for row in table.selected]
        names = sorted({row["table"] for row in table.selected})
        if not names:
            ui.notify("Choose rows first.")
            return
        text = (
            "Mend the cause first. Rows at the destination are replaced by a new copy, and these "
            "letters go; a row that is refused again is a new one."
        )
        if await confirm(f"Copy {', '.join(names[:3])} anew?", text, "Copy anew"):
            done = await person.act(lambda: person.service.retry_letters(person.actor, file, ids))
            if done is not None:
                ui.notify("; ".join(f"{entry.table}: {entry.text}" for entry in done.tables))
            await refresh()

    again.on_click(refresh)
    discard.on_click(throw_away)
    retry.on_click(copy_anew)
    await refresh()


def _values(values: dict[str, Any]) -> str:
    text = ", ".join(f"{column}={value}" for column, value in values.items())
    return text if len(text) <= 300 else f"{text[:300]}…"
