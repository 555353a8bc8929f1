"""The rules of transform: checked against the source's tables, and accepted after a change."""

from __future__ import annotations

from nicegui import ui

from penstock.operations.transform_rules import checked_rules
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm
from penstock.serve.page.jobs_tab import status_badge

_MOST_FINDINGS = 500
_ACCEPT = (
    "Rows at the destination stay as the rules of before made them; only what comes from now on "
    "goes by those of now."
)


async def show_transform(person: Acting, file: PipelineFile) -> None:
    """No row is read, and no value shown."""
    config = file.require_config()

    async def check() -> None:
        findings = await person.read(lambda: checked_rules(config))
        place.clear()
        if findings is None:
            return
        with place:
            failed = sum(found.status == "failed" for found in findings)
            verdict = f"{failed} of {len(findings)} findings failed" if failed else "The rules fit"
            ui.label(f"{verdict}.").classes("font-semibold").props("role=status")
            worst = sorted(findings, key=lambda found: found.status != "failed")
            for found in worst[:_MOST_FINDINGS]:
                with ui.card().classes("ps-card q-pa-sm w-full").style("gap: .2rem"):
                    with ui.row().classes("items-center gap-2"):
                        status_badge(found.status)
                        of = f"{found.table}.{found.column}" if found.column else found.table
                        ui.label(of).classes("font-semibold ps-name")
                    ui.label(found.text).classes("ps-soft ps-name")
                    if found.remedy:
                        ui.label(f"What to do: {found.remedy}").classes("ps-note")

    async def accept() -> None:
        if not await confirm("Accept the rules of now?", _ACCEPT, "Accept"):
            return
        tables = await person.act(lambda: person.service.accept_rules(person.actor, file))
        if tables is not None:
            ui.notify(f"Accepted for {', '.join(tables)}." if tables else "They had not changed.")

    with ui.row().classes("items-center gap-3"):
        ui.button("Check rules", icon="fact_check", on_click=check).props("no-caps outline")
        if person.may_operate:
            ui.button("Accept rules", icon="done_all", on_click=accept).props("no-caps flat")
        ui.label("Types, lengths, keys, and what refers to what.").classes("ps-soft")
    place = ui.column().classes("w-full gap-2")
