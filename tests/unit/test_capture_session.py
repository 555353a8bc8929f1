"""What a session confirms, with a replication stream that a test feeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog, LogWriter
from penstock.model.lsn import Frontier
from penstock.pgoutput.messages import Begin, Commit, Insert
from penstock.source.postgres.capture.session import CaptureSession, CaptureSettings
from tests.pgoutput_bytes import encode, xlog_data
from tests.stream_model import VERSIONS, describe

START = Frontier(0x1000, 0x1030)
END_LSN = 0x2030
TABLE = VERSIONS[0][0]
TRANSACTION = (
    Begin(0x2000, 5, 7),
    TABLE,
    Insert(TABLE.oid, (b"1", b"x")),
    Commit(0x2000, END_LSN, 5),
)


class FedStream:
    """One transaction, and then nothing."""

    wal_end = END_LSN + 0x100
    reply_requested = False

    def __init__(self) -> None:
        self._waiting = [memoryview(xlog_data(encode(message))) for message in TRANSACTION]
        self.confirmed: list[int] = []

    def wait(self, _seconds: float, _extra: int | None) -> bool:
        return bool(self._waiting)

    def receive(self) -> list[memoryview]:
        taken, self._waiting = self._waiting, []
        return taken

    def send_status(self, *, received: int, confirmed: int, ask: bool) -> None:
        self.confirmed.append(confirmed)


@pytest.mark.parametrize(("confirm", "in_the_end"), [("log", END_LSN), ("reader", START.end_lsn)])
def test_what_is_only_in_memory_is_not_confirmed(
    tmp_path: Path, confirm: str, in_the_end: int
) -> None:
    log = ChangeLog(str(tmp_path))
    log.set_reader("shop", START)
    writer = LogWriter(log)
    writer.start_at(START)
    stream: Any = FedStream()
    settings = CaptureSettings(
        confirm_log=confirm == "log",
        segment_bytes=2**20,
        segment_age=3600,
        max_bytes=2**30,
        grace=0,
    )
    session = CaptureSession(
        stream, log, writer, START, describe, settings, START.end_lsn, lambda: None
    )
    session.run(iter([False, True]).__next__)
    received, *_, last = stream.confirmed
    assert received == START.end_lsn, "it was received, and no segment holds it"
    assert last == in_the_end
    assert log.list().frontier == Frontier(0x2000, END_LSN)
