"""What a server says of itself over a replication connection."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import pq

from penstock.answer_limit import answered_within
from penstock.model.errors import SourceUnavailable
from penstock.model.lsn import parse_lsn
from penstock.model.source_identity import SeenSource, SourceIdentity, parse_history
from penstock.source.postgres.silence import SILENCE_SECONDS

_NO_SUCH_FILE = "58P01"


def seen_source(
    conn: psycopg.Connection[Any], publication: str, limit: float = SILENCE_SECONDS
) -> SeenSource:
    """Its identity and how far it has written; ``publication`` is the uuid that it was found to
    have. ``limit`` is how many seconds an answer may take.
    """
    with answered_within(conn, limit):
        system_id, timeline, flushed, database = _ask(conn, "IDENTIFY_SYSTEM")
        # The first timeline has no history. One whose file is gone has none that can be proven.
        found = _ask(conn, f"TIMELINE_HISTORY {timeline}") if int(timeline) > 1 else []
    return SeenSource(
        SourceIdentity(system_id, int(timeline), database, publication),
        parse_lsn(flushed),
        parse_history(found[1]) if found else {},
    )


def _ask(conn: psycopg.Connection[Any], command: str) -> list[str]:
    """The one row of the answer; none where it would be in a file that is not there."""
    try:
        result = conn.pgconn.exec_(command.encode())
    except psycopg.OperationalError as error:
        raise SourceUnavailable(str(error).strip()) from error
    if result.status == pq.ExecStatus.TUPLES_OK:
        return [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]
    if result.error_field(pq.DiagnosticField.SQLSTATE) == _NO_SUCH_FILE.encode():
        return []
    said = result.error_message.decode(errors="replace").strip()
    raise SourceUnavailable(f"the source did not answer {command}: {said}")
