"""Connection poolers, as far as a client can tell one from a server."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

from tests.loopback_server import LoopbackServer, pass_on


class FakePooler(LoopbackServer):
    """Stands before a server as PgBouncer does, as far as a client can tell.

    It answers the start-up packet itself where that asks for replication, and gives clients process
    numbers of its own invention; everything else passes.
    """

    def __init__(self, port: int) -> None:
        self.invents_numbers = True
        self._server_port = port
        super().__init__()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                packet = self._packet(client)
                if struct.unpack("!i", packet[4:8])[0] not in (80877103, 80877104):
                    break
                client.sendall(b"N")  # neither TLS nor GSSAPI
            if b"\0replication\0" in packet:
                text = b"SFATAL\0C08P01\0Munsupported startup parameter: replication\0\0"
                client.sendall(b"E" + struct.pack("!i", len(text) + 4) + text)
                client.close()
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets.append(server)
            server.sendall(packet)
            self._sign_in(client, server)
            self._serve_session(client, server)

    def _sign_in(self, client: socket.socket, server: socket.socket) -> None:
        """Pass messages on until the server is ready; the client's are passwords."""
        kind = b""
        while kind != b"Z":
            kind = self._exactly(server, 1)
            body = self._packet(server)
            if kind == b"K" and self.invents_numbers:
                body = body[:4] + struct.pack("!i", 999_999_999) + body[8:]
            client.sendall(kind + body)
            if kind == b"R" and struct.unpack("!i", body[4:8])[0] not in (0, 12):
                server.sendall(self._exactly(client, 1) + self._packet(client))

    def _serve_session(self, client: socket.socket, server: socket.socket) -> None:
        self._start(pass_on, client, server)
        pass_on(server, client)

    @staticmethod
    def _exactly(source: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = source.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def _packet(self, source: socket.socket) -> bytes:
        length = self._exactly(source, 4)
        return length + self._exactly(source, struct.unpack("!i", length)[0] - 4)


class TransactionPooler(FakePooler):
    """Hands out server connections by the transaction; the one that came back last goes out first.

    Speaks as much of the protocol as a client in no hurry needs: one request at a time.
    """

    def __init__(self, port: int) -> None:
        self._free: list[socket.socket] = []
        self._change = threading.Condition()
        super().__init__(port)

    def _serve_session(self, client: socket.socket, server: socket.socket) -> None:
        self._give_back(server)
        while True:
            request = self._request(client)
            with self._change:
                self._change.wait_for(lambda: self._free)
                server = self._free.pop()
            state = b""
            while state != b"I":
                server.sendall(request)
                state = self._answer(client, server)
                request = b"" if state == b"I" else self._request(client)
            self._give_back(server)

    def _give_back(self, server: socket.socket) -> None:
        with self._change:
            self._free.append(server)
            self._change.notify()

    def _request(self, client: socket.socket) -> bytes:
        """Messages up to the one that asks for an answer. Raises EOFError at the end."""
        request, kind = b"", b""
        while kind not in (b"Q", b"S", b"c", b"f"):
            kind = self._exactly(client, 1)
            if kind == b"X":
                raise EOFError
            request += kind + self._packet(client)
        return request

    def _answer(self, client: socket.socket, server: socket.socket) -> bytes:
        """Passes the answer on; the state of the transaction, or ``G`` where data is to come."""
        while True:
            kind = self._exactly(server, 1)
            body = self._packet(server)
            client.sendall(kind + body)
            if kind == b"G":
                return kind
            if kind == b"Z":
                return body[4:5]
