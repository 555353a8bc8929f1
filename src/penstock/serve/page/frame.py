"""What every page has: the style, the header, badges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from nicegui import ui

from penstock.serve.safety.identity import Identity

_STYLE = Path(__file__).with_name("style.css")

MODES = {"auto": None, "light": False, "dark": True}


def frame(identity: Identity, title: str, mode: str) -> None:
    """Call it first: it makes the page's head, its header and its way back."""
    ui.add_css(_STYLE)
    ui.colors(primary="#0b5c8a", negative="#a8201a", positive="#11693a")
    ui.page_title(f"{title} · Penstock" if title else "Penstock")
    dark = ui.dark_mode(MODES.get(mode))
    with ui.header().classes("ps-header items-center justify-between q-px-md q-py-none"):
        ui.link("Penstock", "/").classes("ps-brand")
        with ui.row().classes("items-center gap-2"):
            role = "may operate" if identity.may_operate else "may look"
            ui.label(f"{identity.name} · {role}").classes("ps-soft text-sm")
            button = ui.button(icon="contrast", on_click=lambda: turn(dark))
            button.props('flat round aria-label="Switch between light and dark"')
            button.tooltip("Light, dark or as the system has it")


def turn(dark: ui.dark_mode) -> None:
    """From one to the next: as the system has it, light, dark."""
    order = [None, False, True]
    dark.value = order[(order.index(dark.value) + 1) % len(order)]
    words = {None: "As the system has it", False: "Light", True: "Dark"}
    ui.notify(words[dark.value])


def badge(words: Mapping[str, tuple[str, str]], key: str) -> ui.row:
    """An icon and a word, and a colour for those who see it."""
    with ui.row().classes(f"ps-badge ps-{key}") as made:
        icon, word = words.get(key, ("help", key))
        ui.icon(icon).props('aria-hidden="true"')
        ui.label(word)
    return made


def repeat(seconds: float, refresh: Callable[[], Awaitable[None] | None]) -> None:
    """Call it again and again while somebody looks. A page that was left is kept for a while, in
    case that its connection comes back; nothing is done for it meanwhile.
    """
    client = ui.context.client

    def turn() -> Awaitable[None] | None:
        return refresh() if client.has_socket_connection else None

    ui.timer(seconds, turn)


def make_selectable(table: ui.table, key: str) -> None:
    """Rows can be chosen, each by a box that says of which row it is."""
    table.props("selection=multiple")
    table.add_slot(
        "header-selection",
        '<q-checkbox v-model="props.selected" dense aria-label="Choose all rows"></q-checkbox>',
    )
    table.add_slot(
        "body-selection",
        '<q-checkbox v-model="props.selected" dense '
        f""":aria-label="'Choose ' + props.row.{key}"></q-checkbox>""",
    )


def note(text: str, *, bad: bool = False) -> None:
    ui.label(text).classes("ps-note ps-note-bad" if bad else "ps-note")


def heading(text: str, level: int = 2) -> ui.label:
    made = ui.label(text).props(f'role=heading aria-level="{level}"')
    return made.classes("ps-title" if level == 1 else "text-lg font-semibold")
