"""The tables of a pipeline: search, states, progress of copies, and what can be done to them."""

from __future__ import annotations

from typing import Any

from nicegui import events, ui

from penstock.cadence import paced
from penstock.operations.table_summaries import TableSummary
from penstock.serve.api.answers import matching_tables
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm
from penstock.serve.page.frame import make_selectable, repeat
from penstock.serve.page.words import PHASE_WORDS, seconds_text, size_text, time_text

_REFRESH_SECONDS = paced(2.0)
_PAGE_ROWS = 50

_COLUMNS = [
    {"name": "name", "label": "Table", "field": "name", "align": "left"},
    {"name": "phase", "label": "State", "field": "phase", "align": "left"},
    {"name": "progress", "label": "Copy", "field": "progress", "align": "left"},
    {"name": "since", "label": "Since", "field": "since", "align": "left"},
]
# Vue's templates: what stands in double braces, or is bound with a colon, is data and never HTML.
_STATE = """
<span :class="'ps-badge ps-' + props.row.phase">
  <q-icon :name="props.row.icon" aria-hidden="true"></q-icon>{{ props.row.word }}</span>
<span v-if="props.row.wish" class="ps-badge q-ml-xs">{{ props.row.wish }}</span>
<div v-if="props.row.why" class="ps-soft ps-name" style="max-width: 30rem">{{ props.row.why }}</div>
"""
_BAR = """
<div v-if="props.row.share !== null">
  <div class="ps-bar" role="progressbar" aria-valuemin="0" aria-valuemax="100"
       :aria-valuenow="Math.round(props.row.share * 100)" :aria-label="'Copy of ' + props.row.name">
    <div :style="{width: (props.row.share * 100) + '%'}"></div></div>
  <span class="ps-soft text-sm">{{ props.row.progress }}</span></div>
"""
_CARD = f"""
<div class="col-12 q-pa-xs"><q-card class="ps-card q-pa-sm">
  <div class="row items-center no-wrap"><q-checkbox v-model="props.selected" dense
    :aria-label="'Choose ' + props.row.name"></q-checkbox>
    <span class="ps-name q-ml-sm">{{{{ props.row.name }}}}</span></div>
  <div>{_STATE}</div>{_BAR}</q-card></div>
"""

_ACTIONS = (
    ("resync", "Copy anew", "sync", "Rows at the destination are replaced by a new copy."),
    ("pause", "Pause", "pause", ""),
    ("resume", "Resume", "play_arrow", ""),
    ("cancel", "Cancel copy", "cancel", "Nothing of it is delivered until it is copied anew."),
    ("retry", "Retry", "replay", ""),
    ("rollback", "Roll back", "undo", "The table goes one step back in its history of states."),
    ("remove", "Remove", "delete", "The table is followed no longer (source.tables.on_remove)."),
)
"""What can be done to chosen tables: operation, label, icon, and what is said before it is done."""


async def show_tables(person: Acting, file: PipelineFile) -> None:
    """Refreshes by itself. Of ten thousand tables, fifty are shown at a time."""
    if file.config is None:
        ui.label("The pipeline file cannot be used, so its tables are not known.")
        return
    view = _Tables(person, file)
    view.make()
    await view.refresh()
    repeat(_REFRESH_SECONDS, view.refresh)


class _Tables:
    def __init__(self, person: Acting, file: PipelineFile) -> None:
        self._person = person
        self._file = file
        self._page = 1
        self._away = False

    def make(self) -> None:
        with ui.row().classes("w-full items-center gap-2"):
            self._search = ui.input("Search tables").props("outlined dense clearable debounce=250")
            self._search.on_value_change(self._again)
            states: dict[str | None, str] = {None: "all states"}
            states |= {phase: word for phase, (_, word) in PHASE_WORDS.items()}
            self._state = ui.select(states, value=None, label="State").props("outlined dense")
            self._state.classes("w-40").on_value_change(self._again)
            self._count = ui.label("").classes("ps-soft")
            ui.space()
            if self._person.may_operate:
                add = ui.button("Add table", icon="add", on_click=self._add)
                add.props("no-caps outline")
        self._problem = ui.label("").classes("ps-note ps-note-bad")
        self._problem.set_visibility(False)
        if self._person.may_operate:
            with ui.row().classes("gap-1 items-center"):
                for action, label, icon, text in _ACTIONS:
                    button = ui.button(label, icon=icon, on_click=self._doing(action, label, text))
                    button.props("no-caps flat dense").classes(f"ps-do-{action}")
        self._table = ui.table(columns=_COLUMNS, rows=[], row_key="name", pagination=0)
        self._table.classes("ps-table w-full").props(
            'flat hide-pagination :grid="Quasar.Screen.lt.sm" :rows-per-page-options="[0]"'
        )
        if self._person.may_operate:
            make_selectable(self._table, "name")
        self._table.add_slot(
            "body-cell-name",
            '<q-td :props="props"><span class="ps-name">{{ props.row.name }}</span></q-td>',
        )
        self._table.add_slot("body-cell-phase", f'<q-td :props="props">{_STATE}</q-td>')
        self._table.add_slot("body-cell-progress", f'<q-td :props="props">{_BAR}</q-td>')
        self._table.add_slot("item", _CARD)
        self._table.add_slot("no-data", '<div class="q-pa-md">There are none.</div>')
        self._pages = ui.pagination(1, 1, value=1).props("max-pages=7 boundary-numbers")
        self._pages.on_value_change(self._turned)

    async def refresh(self) -> None:
        try:
            from nicegui import run

            tables = await run.io_bound(lambda: self._person.service.tables(self._file))
        except Exception as error:
            self._problem.set_text(str(error))
            self._problem.set_visibility(True)
            return
        self._problem.set_visibility(False)
        found = matching_tables(tables or [], self._search.value or "", self._state.value)
        pages = max(1, -(-len(found) // _PAGE_ROWS))
        self._page = min(self._page, pages)
        if self._pages.max != pages:
            self._pages.max = pages
        self._pages.set_visibility(pages > 1)
        self._count.set_text(f"{len(found):,} tables")
        first = (self._page - 1) * _PAGE_ROWS
        rows = [_row(table) for table in found[first : first + _PAGE_ROWS]]
        if rows != self._table.rows:
            self._table.rows = rows

    async def _again(self) -> None:
        self._page = 1
        self._pages.set_value(1)
        await self.refresh()

    async def _turned(self, change: events.ValueChangeEventArguments[Any]) -> None:
        self._page = int(change.value or 1)
        await self.refresh()

    def _doing(self, action: str, label: str, text: str) -> Any:
        async def do() -> None:
            names = [row["name"] for row in self._table.selected]
            if not names:
                ui.notify("Choose tables first.")
                return
            if text and not await confirm(
                f"{label}: {_some(names)}?",
                text,
                label,
                typed=names[0] if action == "remove" else "",
            ):
                return
            await self._do(action, names)

        return do

    async def _do(self, action: str, names: list[str]) -> None:
        service, actor = self._person.service, self._person.actor
        done = await self._person.act(
            lambda: service.tables_action(actor, self._file, action, names)
        )
        if done is not None:
            said = "; ".join(f"{table.table}: {table.text}" for table in done.tables[:5])
            ui.notify(said, type="positive", multi_line=True)
            self._table.selected = []
            await self.refresh()

    async def _add(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("ps-card"):
            ui.label("Follow a table that the patterns do not match").classes("font-semibold")
            name = ui.input("Table", placeholder="schema.table").props("outlined dense autofocus")
            name.classes("w-full")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit("")).props("flat no-caps")
                ui.button("Add", on_click=lambda: dialog.submit(name.value)).props(
                    "no-caps outline"
                )
        text = await dialog
        dialog.delete()
        if text:
            await self._do("add", [text])


def _row(table: TableSummary) -> dict[str, Any]:
    icon, word = PHASE_WORDS.get(table.phase, ("help", table.phase))
    copy, share, progress = table.copy, None, ""
    if copy is not None:
        share = min(1.0, copy.bytes_done / copy.bytes) if copy.bytes else 0.0
        left = copy.remaining_seconds
        progress = f"{share:.0%} of {size_text(copy.bytes)}, {copy.rows:,} rows"
        progress += "" if not left else f", {seconds_text(left)} left"
    why = " ".join(part for part in (table.reason, table.solution, *table.notes) if part)
    return {
        "name": table.name,
        "phase": table.phase,
        "icon": icon,
        "word": word,
        "wish": table.wish or "",
        "why": why[:400],
        "since": time_text(table.since),
        "share": share,
        "progress": progress,
    }


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
