"""What a person does on the page: asked once more, done in a thread, answered in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from nicegui import run, ui

from penstock.model.errors import PenstockError
from penstock.serve.safety.identity import Identity
from penstock.serve.service import Actor, Service

T = TypeVar("T")


class Acting:
    """One person on one page. A page lives longer than the request that it came with: whether the
    person may still see it is asked each time.
    """

    def __init__(
        self, service: Service, actor: Actor, still_valid: Callable[[Identity], bool]
    ) -> None:
        self.service = service
        self.actor = actor
        self._still_valid = still_valid

    @property
    def may_operate(self) -> bool:
        return self.actor.identity.may_operate

    @property
    def is_signed_in(self) -> bool:
        """Whether the session goes on: it has an end, and a token can be revoked."""
        return self._still_valid(self.actor.identity)

    async def read(self, ask: Callable[[], T]) -> T | None:
        """What ``ask`` gives, in a thread; None where that failed, which is then shown, and where
        the person may not see it any more.
        """
        if not self.is_signed_in:
            ui.notify("Your session has ended. Sign in again.", type="negative")
            return None
        try:
            return await run.io_bound(ask)
        except PenstockError as error:
            show_error(error)
            return None

    async def act(self, do: Callable[[], T]) -> T | None:
        """Do it if the person may. None where it failed, which is then shown."""
        if not self.may_operate:
            ui.notify("You may look, not change anything.", type="negative")
            return None
        return await self.read(do)


def show_error(error: PenstockError) -> None:
    """Notifications are plain text: nothing in them is taken for HTML."""
    text = error.message if not error.remedy else f"{error.message} What to do: {error.remedy}"
    ui.notify(text, type="negative", multi_line=True, timeout=12_000, close_button="Close")


async def confirm(title: str, text: str, button: str, *, typed: str = "") -> bool:
    """Ask once more. ``typed``: what has to be typed before the button works."""
    with ui.dialog() as dialog, ui.card().classes("ps-card").style("max-width: 32rem"):
        ui.label(title).classes("ps-title").style("font-size: 1.2rem").props("role=heading")
        ui.label(text).classes("ps-name")
        said = None
        if typed:
            ui.label(f"Type {typed} to go on.").classes("ps-soft ps-name")
            said = ui.input("Name").props("autofocus outlined dense").classes("w-full")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            yes = ui.button(button, on_click=lambda: dialog.submit(True)).props(
                "no-caps color=negative"
            )
        if said is not None:
            yes.bind_enabled_from(said, "value", backward=lambda value: value == typed)
    answer = await dialog
    dialog.clear()
    dialog.delete()
    return bool(answer)


Refresh = Callable[[], Awaitable[None]]
