"""What only a real socket shows: TLS, and events as a stream that does not end."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn

from penstock.serve.observe.events import Events
from penstock.serve.options import ServeOptions
from penstock.serve.safety.tokens import Tokens
from penstock.serve.server import Parts, listen, make_parts, make_server
from penstock.serve.state_folder import StateFolder
from tests.fix_cli import CommandLine
from tests.fix_pipeline import wait_until
from tests.own_certificate import write_certificate


@dataclass
class Listening:
    parts: Parts
    base: str
    token: str
    server: uvicorn.Server

    @property
    def events(self) -> Events:
        return self.parts.service.events

    @property
    def name(self) -> str:
        return self.parts.service.catalogue.all()[0].name


Listen = Callable[..., Listening]


@pytest.fixture
def listening(penstock: CommandLine, tmp_path: Path) -> Iterator[Listen]:
    """Servers in threads of this process; they have ended after the test."""
    threads: list[tuple[Listening, threading.Thread]] = []

    def start(
        certificate: Path | None = None, key: Path | None = None, role: str = "operate"
    ) -> Listening:
        state = tmp_path / "state"
        token = Tokens(StateFolder(state).tokens).create(
            "olga", "read" if role == "read" else "operate"
        )
        options = ServeOptions(
            (penstock.file,),
            state,
            port=0,
            certificate=certificate,
            key=key,
            starts=False,
            page=False,
        )
        made = listen(options)
        port = made.getsockname()[1]
        parts = make_parts(options, port)
        server = make_server(options, parts)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made]})
        thread.start()
        scheme = "https" if certificate else "http"
        found = Listening(parts, f"{scheme}://127.0.0.1:{port}", token, server)
        threads.append((found, thread))
        return found

    def end() -> None:
        while threads:
            found, thread = threads.pop()
            found.server.should_exit = True
            thread.join(30)
            found.parts.service.stop()
            assert not thread.is_alive()

    start.end = end  # type: ignore[attr-defined]
    yield start
    end()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    return certificate, key


def test_over_tls(listening: Listen, pair: tuple[Path, Path]) -> None:
    server = listening(*pair)
    trusts = ssl.create_default_context(cafile=str(pair[0]))
    bearer = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.base, verify=trusts, trust_env=False) as client:
        assert client.get("/v1/pipelines", headers=bearer).status_code == 200
        assert client.get("/v1/pipelines").status_code == 401
        # A browser that signs in gets a cookie that it never sends without TLS.
        form = {"token": server.token}
        signed = client.post("/signin", data=form, headers={"Origin": server.base})
        assert signed.status_code == 303
        cookie = signed.headers["set-cookie"]
        assert all(word in cookie for word in ("; Secure", "; HttpOnly", "; SameSite=Strict"))
        assert client.get("/v1/pipelines").status_code == 200
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.base}/v1/health", trust_env=False)
    plain = server.base.replace("https", "http")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{plain}/v1/pipelines", headers=bearer, trust_env=False)


class Stream:
    """A client that follows; ``until`` reads on."""

    def __init__(self, server: Listening, path: str, last: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        if last is not None:
            headers["Last-Event-ID"] = last
        self._client = httpx.Client(base_url=server.base, headers=headers, trust_env=False)
        self._answer = self._client.send(self._client.build_request("GET", path), stream=True)
        assert self._answer.status_code == 200
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self._lines = self._answer.iter_lines()
        self.id = ""

    def until(self, text: str) -> list[str]:
        """The events that come, as lines, until one has the text in it."""
        found: list[str] = []
        for line in self._lines:
            if line.startswith("id: "):
                self.id = line.removeprefix("id: ")
            if line.startswith("data: "):
                found.append(line)
                if text in line:
                    return found
        pytest.fail(f"the stream ended before {text}")

    def close(self) -> None:
        self._answer.close()
        self._client.close()


def test_events_as_a_stream(listening: Listen) -> None:
    """Order, a burst, a client that comes back, also to another server; for who may only look."""
    server = listening(role="read")
    path = f"/v1/pipelines/{server.name}/events/stream"
    server.events.tell(server.name, "said", "before")
    server.events.tell("another", "said", "of somebody else")
    stream = Stream(server, path)
    assert len(stream.until("before")) == 1
    for number in range(1000):
        server.events.tell(server.name, "odd\nname: x", f"burst {number}.")
    burst = stream.until("burst 999.")
    assert [f"burst {number}." in line for number, line in enumerate(burst)] == [True] * 1000
    stream.close()
    # What came while nobody listened comes first.
    for number in range(300):
        server.events.tell(server.name, "said", f"away {number}.")
    again = Stream(server, path, stream.id)
    away = again.until("away 299.")
    assert len(away) == 300
    again.close()
    everything = Stream(server, "/v1/events/stream", again.id)
    server.events.tell("another", "said", "of all")
    assert len(everything.until("of all")) == 1
    everything.close()
    wait_until(lambda: not server.events._waiting, "nobody is waited for who has gone")


def test_a_server_that_ends_ends_its_streams(listening: Listen) -> None:
    """And a client that comes back to the next one is told what that one sees."""
    server = listening()
    stream = Stream(server, "/v1/events/stream")
    server.events.tell(server.name, "said", "first")
    stream.until("first")
    listening.end()  # type: ignore[attr-defined]
    after = listening()
    after.events.tell(after.name, "said", "second")
    again = Stream(after, "/v1/events/stream", stream.id)
    assert len(again.until("second")) == 1
    again.close()
    stream.close()
