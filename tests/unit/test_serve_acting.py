"""Who may still see what a page shows."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from nicegui import run, ui

from penstock.serve.page.acting import Acting
from penstock.serve.safety.identity import Identity
from penstock.serve.service import Actor, Service


def test_nothing_is_read_for_who_is_not_signed_in_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(ask: Any) -> Any:
        return ask()

    said: list[str] = []
    monkeypatch.setattr(ui, "notify", lambda text, **_: said.append(text))
    monkeypatch.setattr(run, "io_bound", at_once)
    valid = [True]
    actor = Actor(Identity("olga", "operate", "token"), "127.0.0.1")
    person = Acting(cast(Service, None), actor, lambda _: valid[0])
    assert asyncio.run(person.read(lambda: "a row")) == "a row"
    valid[0] = False
    assert asyncio.run(person.read(lambda: "a row")) is None
    assert asyncio.run(person.act(lambda: "done")) is None
    assert said == ["Your session has ended. Sign in again."] * 2
