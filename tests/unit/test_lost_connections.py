"""What is made of a connection that does not come to be."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from penstock.model.error_policy import Action, decide
from penstock.model.errors import PenstockError, SourceUnavailable
from penstock.source.postgres.capture.stream import ReplicationStream
from penstock.source.postgres.connect import connect
from penstock.source.postgres.seen_source import seen_source
from tests.loopback_server import LoopbackServer

_TLS = struct.pack(">II", 8, 80877103)


def refusal(code: str, text: str) -> bytes:
    body = f"SFATAL\0C{code}\0M{text}\0\0".encode()
    return b"E" + struct.pack(">I", len(body) + 4) + body


class FallingServer(LoopbackServer):
    """Agrees to TLS, and is gone then; without TLS it says ``answer``."""

    def __init__(self) -> None:
        self.resets = False
        self.answer = refusal("28000", 'no pg_hba.conf entry for host "::1", no encryption')
        super().__init__()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            if client.recv(1024).startswith(_TLS):
                client.sendall(b"S")
                client.recv(1)
                if self.resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
            else:
                client.sendall(self.answer)
            client.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def server() -> Iterator[FallingServer]:
    made = FallingServer()
    yield made
    made.close()


@pytest.mark.parametrize("mode", ["require", "prefer"])
@pytest.mark.parametrize("resets", [False, True])
def test_a_server_that_goes_away_in_the_middle_of_tls_is_tried_again(
    server: FallingServer, mode: str, *, resets: bool
) -> None:
    """As each does that fails over. It is no quarrel about TLS, nor about pg_hba.conf."""
    server.resets = resets
    with pytest.raises(PenstockError, match="it was lost before it was made") as caught:
        connect(f"postgresql://shop:secret@127.0.0.1:{server.port}/shop?sslmode={mode}")
    assert decide(caught.value) is Action.RETRY


def test_a_password_hides_no_cause(server: FallingServer) -> None:
    """What is shown has no secret in it; what is judged is what was said."""
    server.answer = refusal("3D000", 'database "shop" does not exist')
    with pytest.raises(PenstockError, match="the server has no such database") as caught:
        connect(f"postgresql://shop:database@127.0.0.1:{server.port}/shop?sslmode=disable")
    assert decide(caught.value) is Action.STOP


class SilentServer(LoopbackServer):
    """Lets everybody in, and answers nothing after that: frozen, behind a proxy that lives."""

    def _serve(self, client: socket.socket) -> None:
        client.recv(1024)
        client.sendall(b"R" + struct.pack(">II", 8, 0) + b"Z" + struct.pack(">Ic", 5, b"I"))
        with suppress(OSError):
            while client.recv(1024):
                pass
        client.close()


def test_a_replication_connection_is_not_waited_for_for_ever() -> None:
    """It is asked through libpq, which hears no signal: not even a stop would end the wait."""
    server = SilentServer()
    url = f"postgresql://shop@127.0.0.1:{server.port}/shop?sslmode=disable"
    try:
        with pytest.raises(SourceUnavailable):
            seen_source(psycopg.connect(url, autocommit=True), "", 0.2)
        with pytest.raises(SourceUnavailable):
            ReplicationStream(psycopg.connect(url, autocommit=True), limit=0.2)
    finally:
        server.close()
