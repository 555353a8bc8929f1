"""Receivers of the destination webhooks: how they stand, and what can be done to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from penstock.cadence import paced
from penstock.model.errors import PenstockError
from penstock.operations.webhook_subscriptions import opened_subscriptions, send_test
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.acting import Acting, confirm
from penstock.serve.page.frame import make_selectable, repeat
from penstock.serve.page.words import size_text

if TYPE_CHECKING:
    from penstock.destination.webhooks.options import WebhooksOptions
    from penstock.destination.webhooks.subscription import Kept
    from penstock.destination.webhooks.subscriptions import Subscriptions

    Act = Callable[[WebhooksOptions, Subscriptions, str], str]

_REFRESH_SECONDS = paced(5.0)

_COLUMNS = [
    {"name": key, "label": label, "field": key, "align": "left"}
    for key, label in (
        ("id", "Id"),
        ("url", "Receiver"),
        ("state", "State"),
        ("behind", "Behind"),
        ("delivered", "Delivered"),
        ("letters", "Dead letters"),
        ("error", "What went wrong last"),
    )
]


def _pause(_: WebhooksOptions, of: Subscriptions, name: str) -> str:
    return of.pause(name).state


def _resume(_: WebhooksOptions, of: Subscriptions, name: str) -> str:
    return of.resume(name).state


def _skip(_: WebhooksOptions, of: Subscriptions, name: str) -> str:
    return of.resume(name, skip=True).state


def _test(options: WebhooksOptions, of: Subscriptions, name: str) -> str:
    answer = send_test(options, of.one(name))
    return answer.verdict if answer.verdict == "delivered" else f"{answer.verdict}: {answer.why}"


def _remove(_: WebhooksOptions, of: Subscriptions, name: str) -> str:
    of.remove(name)
    return "removed"


_ACTIONS: tuple[tuple[str, str, str, str, Act], ...] = (
    ("pause", "Pause", "pause", "", _pause),
    ("resume", "Resume", "play_arrow", "", _resume),
    (
        "resume",
        "Resume from now",
        "skip_next",
        "For one that is disabled: it never gets what came meanwhile.",
        _skip,
    ),
    ("test", "Send a test", "send", "", _test),
    ("remove", "Remove", "delete", "It is forgotten, with its backlog and dead letters.", _remove),
)
"""What can be done to chosen receivers: operation, label, icon, what is said before, how."""


async def show_webhooks(person: Acting, file: PipelineFile) -> None:
    """Refreshes by itself. Receivers are added on the command line, which alone tells secrets."""
    if not person.may_operate:
        text = "The address of a receiver is often its key: they are shown to the role operate."
        ui.label(text).classes("ps-soft")
        return
    with ui.row().classes("gap-1 items-center"):
        for action, label, icon, text, act in _ACTIONS:
            button = ui.button(label, icon=icon).props("no-caps flat dense")
            button.on_click(
                lambda action=action, label=label, text=text, act=act: do(action, label, text, act)
            )
    table = ui.table(columns=_COLUMNS, rows=[], row_key="id", pagination=50)
    table.classes("ps-table w-full").props("flat wrap-cells")
    none = "There are none. Add one: penstock webhooks add"
    table.add_slot("no-data", f'<div class="q-pa-md">{none}</div>')
    make_selectable(table, "id")
    problem = ui.label("").classes("ps-note ps-note-bad")
    problem.set_visibility(False)

    def found() -> list[Kept] | PenstockError:
        try:
            with opened_subscriptions(file.views, file.path) as (_, subscriptions):
                return subscriptions.all()
        except PenstockError as error:
            return error

    async def refresh() -> None:
        kept = await person.read(found)
        problem.set_visibility(isinstance(kept, PenstockError))
        if kept is None or isinstance(kept, PenstockError):
            problem.set_text(str(kept or ""))
            return
        rows = [_row(each) for each in kept]
        if rows != table.rows:
            table.rows = rows
            chosen = {row["id"] for row in table.selected}
            table.selected = [row for row in rows if row["id"] in chosen]

    def steer(action: str, act: Act, name: str) -> str:
        return person.service.on_subscriptions(
            person.actor,
            file,
            action,
            lambda options, of: act(options, of, name),
            subscription=name,
        )

    async def do(action: str, label: str, text: str, act: Act) -> None:
        names = [row["id"] for row in table.selected]
        if not names:
            ui.notify("Choose receivers first.")
            return
        if text and not await confirm(f"{label}: {', '.join(names[:3])}?", text, label):
            return
        for name in names:
            done = await person.act(partial(steer, action, act, name))
            if done is not None:
                ui.notify(f"{name}: {done}")
        await refresh()

    await refresh()
    repeat(_REFRESH_SECONDS, refresh)


def _row(kept: Kept) -> dict[str, Any]:
    value = kept.to_json()
    reason = f" ({value['reason']})" if value["reason"] else ""
    return {
        "id": value["id"],
        "url": value["url"],
        "state": f"{value['state']}{reason}",
        "behind": size_text(value["behind_bytes"]),
        "delivered": f"{value['delivered']:,}",
        "letters": f"{value['dead_letters']:,}",
        "error": value["last_error"] or "",
    }
