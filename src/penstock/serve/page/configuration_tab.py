"""The pipeline file with its defaults, without secrets; and the end of the pipeline."""

from __future__ import annotations

import yaml
from nicegui import ui

from penstock.operations.hidden_secrets import shown_configuration
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm


async def show_configuration(person: Acting, file: PipelineFile) -> None:
    ui.label(str(file.path)).classes("ps-soft ps-name")
    config = file.config
    if config is None:
        ui.label(file.problem.message if file.problem else "").classes("ps-note ps-note-bad")
        return
    shown = await person.read(lambda: shown_configuration(config, file.path))
    if shown is not None:
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
        ui.label(text).classes("ps-mono ps-card q-pa-md w-full")
    if person.may_operate:
        button = ui.button("Destroy the pipeline", icon="delete_forever")
        button.props("no-caps outline").on_click(lambda: _destroy(person, file))


async def _destroy(person: Acting, file: PipelineFile) -> None:
    text = (
        "Slot, publication, positions, table states and change log are removed. The destination "
        "keeps its data. The pipeline has to be stopped first."
    )
    if not await confirm(f"Destroy {file.name}?", text, "Destroy", typed=file.name):
        return
    job = await person.act(lambda: person.service.start_job(person.actor, file, "destroy", {}))
    if job is not None:
        ui.notify("It is being removed; the events say how it went.")
