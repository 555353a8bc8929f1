"""The replication connection: messages in, status updates out. No knowledge of the log.

Spoken through psycopg's libpq wrapper, because confirming must be ours alone: a higher-level
replication cursor advances the flush position by itself at keepalives (docs/adr/0002).
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import pq, sql

from penstock.answer_limit import answered_within
from penstock.model.errors import SlotError, SourceError, SourceUnavailable
from penstock.model.lsn import format_lsn
from penstock.model.source_identity import SeenSource
from penstock.pgoutput.messages import POSTGRES_EPOCH_MICROS
from penstock.source.postgres.seen_source import seen_source
from penstock.source.postgres.silence import SILENCE_SECONDS

_XLOG_DATA = ord("w")
_KEEPALIVE = ord("k")
_KEEPALIVE_LAYOUT = struct.Struct(">cQqB")
_STATUS_LAYOUT = struct.Struct(">cQQQqB")

# The server sends each change by itself. What it pays for that depends on the reader: one that
# takes every packet at once makes it work twice as hard as one that lets them pile up on the
# server's side, where they merge. So: wait a moment, then take all there is (docs/adr/0005).
_GATHER_SECONDS = 0.008
# libpq reads as much at once as its buffer holds, and the buffer grows only for a large message.
_LIBPQ_BUFFER = 4 * 1024 * 1024
# Packets merge while our window is closed, so it must be small enough to close. Over a distance
# that would cost throughput (a window a round trip): there the kernel's own choice stays.
_NEAR_RECEIVE_BUFFER = 256 * 1024
_NEAR_MICROS = 200
_TCP_INFO_MIN_RTT = 148


class ReplicationStream:
    """One replication session on one slot. What is asked before it streams is answered within
    ``limit`` seconds: the process waits for it in libpq, and hears no signal meanwhile.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        settings: Sequence[str] = (),
        limit: float = SILENCE_SECONDS,
    ) -> None:
        self._connection = connection
        self._limit = limit
        self._pgconn = connection.pgconn
        self.wal_end = 0
        """The furthest WAL position that the server has told of."""
        self.reply_requested = False
        self._tune_buffers()
        for setting in settings:
            self._exec(setting, pq.ExecStatus.COMMAND_OK)

    def identify(self, publication: str) -> SeenSource:
        """What the server says of itself; ``publication`` is the uuid of ours."""
        return seen_source(self._connection, publication, self._limit)

    def start(
        self, slot: str, publications: Sequence[str], start_lsn: int, *, messages: bool
    ) -> None:
        """Begin streaming all transactions whose commit record lies at or after ``start_lsn``.

        ``messages``: with logical messages. The server sends those of everybody or none, and each
        is held in memory as a whole, up to a gigabyte.
        """
        names = sql.SQL(", ").join(map(sql.Identifier, publications)).as_string(self._connection)
        asked = "true" if messages else "false"
        command = (
            f"START_REPLICATION SLOT {sql.Identifier(slot).as_string(self._connection)} "
            f"LOGICAL {format_lsn(start_lsn)} "
            f"(proto_version '1', publication_names {sql.quote(names)}, messages '{asked}')"
        )
        self._exec(command, pq.ExecStatus.COPY_BOTH, slot=slot)
        self._pgconn.nonblocking = 1

    def wait(self, seconds: float, extra: int | None = None) -> bool:
        """Wait until the server sent something, or ``extra`` (a file descriptor) is readable."""
        sockets = [self._pgconn.socket] if extra is None else [self._pgconn.socket, extra]
        readable, _, _ = select.select(sockets, [], [], seconds)
        return bool(readable)

    def receive(self) -> list[memoryview]:
        """Let a little gather, then take what has arrived, as whole XLogData messages."""
        messages: list[memoryview] = []
        get, take = self._pgconn.get_copy_data, messages.append
        time.sleep(_GATHER_SECONDS)
        try:
            self._pgconn.consume_input()
            while True:
                size, data = get(1)
                if size <= 0:
                    break
                if data[0] == _XLOG_DATA:
                    take(data)
                else:
                    self._keepalive(data)
        except psycopg.OperationalError as error:
            raise SourceUnavailable(
                f"the replication connection was lost: {str(error).strip()}"
            ) from error
        if size < 0:
            self._raise_end_of_stream()
        return messages

    def send_status(self, *, received: int, confirmed: int, ask: bool = False) -> None:
        """Tell the server what has arrived and what it may forget."""
        micros = int(time.time() * 1_000_000) - POSTGRES_EPOCH_MICROS
        message = _STATUS_LAYOUT.pack(b"r", received, confirmed, confirmed, micros, ask)
        self.reply_requested = False
        try:
            self._pgconn.put_copy_data(message)
            # A full send buffer means that the server reads nothing now; the next call retries.
            self._pgconn.flush()
        except psycopg.OperationalError as error:
            raise SourceUnavailable(
                f"the replication connection was lost: {str(error).strip()}"
            ) from error

    def close(self) -> None:
        self._connection.close()

    def _keepalive(self, data: memoryview) -> None:
        if data[0] != _KEEPALIVE or len(data) != _KEEPALIVE_LAYOUT.size:
            raise SourceError(f"unknown replication message {bytes(data[:1])!r}")
        _, wal_end, _, reply = _KEEPALIVE_LAYOUT.unpack(data)
        self.wal_end = max(self.wal_end, wal_end)
        self.reply_requested |= bool(reply)

    def _raise_end_of_stream(self) -> None:
        result = self._pgconn.get_result()
        reason = ""
        if result is not None:
            reason = result.error_message.decode(errors="replace").strip()
        raise SourceUnavailable(f"the server ended the replication stream: {reason or 'no reason'}")

    def _exec(
        self,
        command: str,
        expected: pq.ExecStatus = pq.ExecStatus.TUPLES_OK,
        slot: str = "",
    ) -> pq.abc.PGresult:
        try:
            with answered_within(self._connection, self._limit):
                result = self._pgconn.exec_(command.encode())
        except psycopg.OperationalError as error:
            raise SourceUnavailable(str(error).strip()) from error
        if result.status == expected:
            return result
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        message = result.error_message.decode(errors="replace").strip()
        if state == "55006":
            raise SlotBusy(f"replication slot {slot} is in use: {message}")
        if state in ("42704", "55000"):
            raise SlotError(
                f"replication slot {slot} cannot be used: {message}",
                remedy="the slot was dropped or invalidated, and the changes since then are gone: "
                "`penstock destroy` and `penstock run` start anew",
            )
        if state[:2] in ("57", "53", "08") or not state:
            raise SourceUnavailable(message)
        raise SourceError(f"the source refused {command.partition(' (')[0]!r}: {message}")

    def _tune_buffers(self) -> None:
        self._exec(f"SELECT repeat(' ', {_LIBPQ_BUFFER})")
        with socket.socket(fileno=socket.dup(self._pgconn.socket)) as copy:
            if copy.family == socket.AF_UNIX:
                return
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            if len(info) < _TCP_INFO_MIN_RTT + 4:
                return
            (round_trip,) = struct.unpack_from("=I", info, _TCP_INFO_MIN_RTT)
            if round_trip < _NEAR_MICROS:
                copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NEAR_RECEIVE_BUFFER)


class SlotBusy(SlotError):
    """Somebody else streams from the slot right now."""
