"""What stands in front of the server: requests that break off, sessions that end, answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.serve.safety.audit import Audit
from penstock.serve.safety.exchange import Message, Receive, Scope, Send
from penstock.serve.safety.guard import Guard, Trusted
from penstock.serve.safety.identity import Identity
from penstock.serve.safety.origins import Origins
from penstock.serve.safety.sessions import SESSION_SECONDS, Sessions
from penstock.serve.safety.tokens import Tokens

HOST = "penstock.example"


class Place:
    """A guard before an application that writes down what it was asked."""

    def __init__(self, folder: Path, *, tls: bool = False, status: int = 200) -> None:
        self.now = 1000.0
        self.tokens = Tokens(folder / "tokens.json")
        self.token = self.tokens.create("olga", "operate")
        self.sessions = Sessions(b"k" * 32, lambda: self.now)
        self.refusals = folder / "refused.log"
        self.bodies: list[bytes] = []
        trust = Trusted(
            Origins.of(HOST, 443 if tls else 80, tls=tls),
            self.tokens,
            self.sessions,
            None,
            "cookie",
            secure_cookie=tls,
        )
        self.status = status
        self.guard = Guard(self._app, trust, Audit(folder / "audit.log", self.refusals))

    async def _app(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(self, messages: Iterable[Message], path: str = "/v1/x", host: str = HOST) -> Any:
        """The first message of the answer, None where there was none."""
        given, sent = iter(messages), []
        headers = {"host": host, "authorization": f"Bearer {self.token}"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }

        async def receive() -> Message:
            return next(given)

        async def send(message: Message) -> None:
            sent.append(message)

        asyncio.run(self.guard(scope, receive, send))
        return sent[0] if sent else None

    def refused(self) -> list[dict[str, Any]]:
        text = self.refusals.read_text() if self.refusals.exists() else ""
        return [json.loads(line) for line in text.splitlines()]


WHOLE = {"type": "http.request", "body": b"{}", "more_body": False}


@pytest.mark.parametrize(
    "parts", [(), ({"type": "http.request", "body": b"{", "more_body": True},)]
)
def test_a_request_that_breaks_off_is_not_carried_out(
    tmp_path: Path, parts: tuple[Message, ...]
) -> None:
    place = Place(tmp_path)
    assert place.ask([*parts, {"type": "http.disconnect"}]) is None
    assert place.bodies == []
    (entry,) = place.refused()
    assert (entry["who"], entry["path"]) == ("olga", "/v1/x")
    assert place.ask([WHOLE])["status"] == 200
    assert place.bodies == [b"{}"]


@pytest.mark.parametrize("status", [400, 404, 405, 422])
def test_what_nobody_should_have_sent_is_written_down(tmp_path: Path, status: int) -> None:
    place = Place(tmp_path, status=status)
    place.ask([WHOLE], "/v1/pipelines/../key")
    (entry,) = place.refused()
    assert (entry["path"], entry["who"]) == ("/v1/pipelines/../key", "olga")
    assert entry["reason"].startswith(str(status))
    assert place.token not in place.refusals.read_text()


@pytest.mark.parametrize("status", [200, 409])
def test_what_may_be_asked_is_not(tmp_path: Path, status: int) -> None:
    place = Place(tmp_path, status=status)
    place.ask([WHOLE])
    assert place.refused() == []


@pytest.mark.parametrize(("tls", "host", "is_there"), [(True, HOST, True), (False, HOST, False)])
def test_browsers_are_told_to_stay_with_tls(
    tmp_path: Path, tls: bool, host: str, is_there: bool
) -> None:
    answer = Place(tmp_path, tls=tls).ask([WHOLE], host=host)
    assert (b"strict-transport-security" in dict(answer["headers"])) is is_there


def test_no_machine_is_told_so_of_its_own_name(tmp_path: Path) -> None:
    place = Place(tmp_path, tls=True)
    for host in ("localhost", "127.0.0.1:8720", "[::1]", "[::1"):
        answer = place.ask([WHOLE], host=host)
        assert answer["status"] == 421
        told = b"strict-transport-security" in dict(answer["headers"])
        assert told is (host == "[::1"), host


def test_a_page_knows_when_its_session_has_ended(tmp_path: Path) -> None:
    place = Place(tmp_path)
    local = place.sessions.identify(place.sessions.cookie(Identity("local", "operate")))
    (token,) = place.tokens.all()
    by_token = place.sessions.identify(place.sessions.cookie(Identity("olga", "operate", token.id)))
    assert local is not None
    assert by_token is not None
    assert place.guard.still_valid(local)
    assert place.guard.still_valid(by_token)
    place.tokens.revoke(token.id)
    assert not place.guard.still_valid(by_token)
    place.now += SESSION_SECONDS + 1
    assert not place.guard.still_valid(local)
