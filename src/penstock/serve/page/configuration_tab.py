"""The pipeline file with its defaults, without secrets; and the end of the pipeline."""

from __future__ import annotations

import yaml
from nicegui import ui

from penstock.operations.hidden_secrets import shown_configuration
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm


async def show_configuration(person: Acting, file: PipelineFile) -> None:
    ui.label(str(file.path)).classes("ps-soft ps-name")
    if not file.views:
        ui.label(file.problem.message if file.problem else "").classes("ps-note ps-note-bad")
        return
    shown = await person.read(lambda: shown_configuration(file.views, file.path))
    if shown is not None:
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
        ui.label(text).classes("ps-mono ps-card q-pa-md w-full")
    if person.may_operate:
        with ui.row().classes("gap-2"):
            _offer(person, file, "Destroy the pipeline")
            if len(file.views) > 1:
                for view in file.views:
                    name = view.destination_name
                    _offer(person, file.only(name), f"Give up destination {name}")


def _offer(person: Acting, file: PipelineFile, label: str) -> None:
    button = ui.button(label, icon="delete_forever").props("no-caps outline")
    button.on_click(lambda: _destroy(person, file))


async def _destroy(person: Acting, file: PipelineFile) -> None:
    """``file`` is the whole pipeline, or one of its destinations."""
    of = file.destination
    text = (
        "Its position, its table states and what the change log keeps for it are removed; what was "
        "delivered stays. The pipeline has to be stopped first. Take it out of the file, too."
        if of
        else "Slot, publication, positions, table states and change log are removed. The "
        "destination keeps its data. The pipeline has to be stopped first."
    )
    asked = f"Give up {of} of {file.name}?" if of else f"Destroy {file.name}?"
    if not await confirm(asked, text, "Give up" if of else "Destroy", typed=of or file.name):
        return
    job = await person.act(lambda: person.service.start_job(person.actor, file, "destroy", {}))
    if job is not None:
        ui.notify("It is being removed; the tab Operations says how it goes.")
