"""A connection pooler, as far as a client can tell one from a server."""

from __future__ import annotations

import socket
import struct
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
            self._start(pass_on, client, server)
            kind = b""
            while kind != b"Z":
                kind = self._exactly(server, 1)
                body = self._packet(server)
                if kind == b"K" and self.invents_numbers:
                    body = body[:4] + struct.pack("!i", 999_999_999) + body[8:]
                client.sendall(kind + body)
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
