"""What capture of topics says about itself, beside what a session knows."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from penstock.model.lsn import Frontier, format_lsn
from penstock.source.kafka.offsets import Offsets, position_of
from penstock.source.kafka.transcode import Counts


def report_of(counts: Counts, held: Frontier | None, offsets: Offsets) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "at": time.time(),
        "wal_end": format_lsn(position_of(offsets.total)),
        "log_end": format_lsn(held.end_lsn) if held else None,
        "confirmed": format_lsn(held.end_lsn if held else 0),
        "messages": counts.messages,
        "received_bytes": counts.bytes,
        "left_out": counts.not_followed,
        "repeated": counts.repeated,
        "stale": counts.stale,
        "malformed": counts.malformed,
        "malformed_by_topic": dict(counts.by_topic),
        "forged": counts.malformed,
    }
