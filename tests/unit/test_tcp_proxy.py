"""The proxy of the crash tests: bytes pass whole and in order, and each failure is what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.loopback_server import LoopbackServer, pass_on
from tests.tcp_proxy import TcpProxy


class Echo(LoopbackServer):
    """Sends back what it gets, and ends when its client ends."""

    def _serve(self, client: socket.socket) -> None:
        pass_on(client, client)


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    echo = Echo()
    with TcpProxy(echo.port) as proxy:
        yield proxy
    echo.close()


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=20)


def received(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(65536)
        assert more, "ended early"
        data += more
    return data


def test_passes_everything_both_ways_in_order(proxy: TcpProxy) -> None:
    sent = b"".join(number.to_bytes(4) for number in range(1_000_000))
    with connect(proxy) as client, connect(proxy) as idle:
        # More than all buffers on the way hold: the writer has to wait for the reader.
        writer = threading.Thread(target=client.sendall, args=(sent,))
        writer.start()
        assert received(client, len(sent)) == sent
        writer.join()
        idle.sendall(b"still here")
        assert received(idle, 10) == b"still here"
        assert proxy.connections == 2
        # The end passes, too, after what came before it.
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert received(client, 4) == b"last"
        assert client.recv(10) == b""


def test_cut_resets_what_is_open_and_takes_what_comes(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        received(client, 1)
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    with connect(proxy) as client:
        client.sendall(b"again")
        assert received(client, 5) == b"again"


def test_silence_holds_back_and_loses_nothing(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        received(client, 1)
        proxy.silence(3600)
        client.sendall(b"held back")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(10)
        client.settimeout(20)
        proxy.accept()
        assert received(client, 9) == b"held back"
        proxy.silence(0.2)
        client.sendall(b"ends by itself")
        assert received(client, 14) == b"ends by itself"


def test_refuses_until_it_accepts_again(proxy: TcpProxy) -> None:
    with connect(proxy) as before:
        before.sendall(b"a")
        received(before, 1)
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            before.recv(10)
        with pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(10)
        proxy.accept()
        with connect(proxy) as client:
            client.sendall(b"back")
            assert received(client, 4) == b"back"


def test_a_target_that_is_away_is_an_ended_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (
        TcpProxy(port) as proxy,
        pytest.raises(ConnectionResetError),
        connect(proxy) as client,
    ):
        client.recv(10)
