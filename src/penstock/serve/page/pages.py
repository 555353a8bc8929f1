"""The page's addresses. NiceGUI knows one set of pages a process, so they are made once."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from nicegui import app, ui

from penstock.cadence import paced
from penstock.serve.page.acting import Acting
from penstock.serve.page.frame import frame, note
from penstock.serve.page.overview import OverviewRows, show_overview
from penstock.serve.page.pipeline_page import show_pipeline
from penstock.serve.safety.guard import IDENTITY
from penstock.serve.safety.identity import Identity
from penstock.serve.service import Actor, Service, UnknownPipeline

_RECONNECT_SECONDS = 30.0
_LOOK_SECONDS = paced(2.0)


def install_pages(
    application: FastAPI, service: Service, still_valid: Callable[[Identity], bool]
) -> None:
    """Add the page to the API's application. Whoever gets here has passed the guard."""

    rows = OverviewRows(service)

    def acting(request: Request) -> Acting:
        identity: Identity = request.scope[IDENTITY]
        address = request.client.host if request.client else ""
        person = Acting(service, Actor(identity, address), still_valid)
        _leave_in_time(person)
        return person

    @ui.page("/")
    def overview(request: Request, mode: str = "auto") -> None:
        person = acting(request)
        frame(person.actor.identity, "", mode)
        show_overview(rows)

    @ui.page("/pipelines/{name}")
    async def pipeline(
        request: Request,
        name: str,
        mode: str = "auto",
        tab: str = "tables",
        destination: str | None = None,
    ) -> None:
        person = acting(request)
        frame(person.actor.identity, name, mode)
        try:
            file = service.pipeline(name)
        except UnknownPipeline as error:
            note(error.message, bad=True)
            ui.link("All pipelines", "/").classes("ps-link")
            return
        await show_pipeline(person, file, tab, destination)

    # Its bar for requests under way has no name that could be read out.
    app.config.quasar_config["loadingBar"]["skipHijack"] = True
    ui.run_with(
        application,
        title="Penstock",
        language="en-US",
        reconnect_timeout=_RECONNECT_SECONDS,
        show_welcome_message=False,
        # It would compile style sheets in the browser, whenever a page is opened.
        tailwind=False,
    )


def _leave_in_time(person: Acting) -> None:
    """Once the session has ended, nothing is left of the page but the way to the sign-in form."""
    client = ui.context.client

    def look() -> None:
        if not person.is_signed_in:
            ui.navigate.to("/signin")
            client.content.clear()

    ui.timer(_LOOK_SECONDS, look)
