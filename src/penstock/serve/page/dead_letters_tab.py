"""Rows that the destination refused: looked at, discarded, or brought again by a new copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import events, ui

from penstock.config import PipelineConfig
from penstock.destination.dead_letters import DeadLetter
from penstock.destination.registry import count_dead_letters
from penstock.operations.dead_letters import get_letter, list_letters
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
    {"name": "whole", "label": "", "field": "id", "align": "right"},
]
_ALL = ""
# Vue's template: what is bound with a colon is data and never HTML.
_WHOLE = """
<q-td :props="props"><q-btn flat dense no-caps icon="open_in_full" label="Whole"
  :aria-label="'Show the whole of ' + props.row.id"
  @click="() => $parent.$emit('whole', props.row.id)"></q-btn></q-td>
"""


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
        of = ui.select({_ALL: "all tables"}, value=_ALL, label="Of").props("outlined dense")
        of.classes("w-60")
        more = ui.button("Next 200", icon="navigate_next").props("no-caps flat")
        more.set_visibility(False)
    table = ui.table(columns=_COLUMNS, rows=[], row_key="id", pagination=20)
    table.classes("ps-table w-full").props("flat wrap-cells")
    table.add_slot(
        "no-data", '<div class="q-pa-md">No refused rows are kept at the destination.</div>'
    )
    table.add_slot("body-cell-whole", _WHOLE)
    make_selectable(table, "id")
    after = [0]

    async def refresh() -> None:
        counts = await person.read(lambda: _counted(config))
        names = {_ALL: f"all tables ({sum((counts or {}).values())})"}
        names |= {name: f"{name} ({count})" for name, count in sorted((counts or {}).items())}
        of.set_options(names, value=of.value if of.value in names else _ALL)
        wanted = str(of.value) or None
        letters = await person.read(
            lambda: list_letters(config, table=wanted, after=after[0], most=_MOST)
        )
        more.set_visibility(len(letters or ()) == _MOST)
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

    async def begin_anew() -> None:
        after[0] = 0
        await refresh()

    async def go_on() -> None:
        after[0] = max((row["id"] for row in table.rows), default=0)
        await refresh()

    async def show_whole(event: events.GenericEventArguments) -> None:
        letter = await person.read(lambda: get_letter(config, int(event.args)))
        if letter is not None:
            await _show_whole(letter)

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

    again.on_click(begin_anew)
    of.on_value_change(begin_anew)
    more.on_click(go_on)
    table.on("whole", show_whole)
    discard.on_click(throw_away)
    retry.on_click(copy_anew)
    await refresh()


async def _show_whole(letter: DeadLetter) -> None:
    """Every value as it was, however long it is."""
    with ui.dialog() as dialog, ui.card().classes("ps-card").style("max-width: 48rem; width: 100%"):
        title = f"Refused row {letter.id} of {letter.table}"
        ui.label(title).classes("ps-title").style("font-size: 1.2rem").props("role=heading")
        ui.label(f"{letter.op} at {letter.commit_lsn}, refused {letter.refused_at}").classes(
            "ps-soft"
        )
        ui.label(f"{letter.cause} ({letter.sqlstate})").classes("ps-note ps-note-bad")
        for column, value in letter.values.items():
            ui.label(column).classes("font-semibold ps-name")
            ui.label("NULL" if value is None else value).classes("ps-mono w-full")
        ui.button("Close", on_click=dialog.close).props("flat no-caps")
    await dialog
    dialog.clear()
    dialog.delete()


def _counted(config: PipelineConfig) -> Mapping[str, int]:
    return count_dead_letters(config.destination_type, config.destination_options, config.delivery)


def _values(values: dict[str, Any]) -> str:
    text = ", ".join(f"{column}={value}" for column, value in values.items())
    return text if len(text) <= 300 else f"{text[:300]}…"
