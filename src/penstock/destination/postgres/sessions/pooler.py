"""A pooler before the destination: one that keeps sessions together will do, others are refused.

Settings, prepared statements and temporary tables belong to a session. A pooler that hands out
server connections by the transaction takes them away from us, and leaves them to strangers.
"""

from __future__ import annotations

from contextlib import closing

import psycopg

from penstock.answer_limit import answered_within
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import DestinationError
from penstock.source.postgres.connect import Party, connect

_TRIES = 3
_ANSWER_SECONDS = 20.0


def refuse_transaction_pool(
    conn: psycopg.Connection[tuple[object, ...]], url: ConnectionUrl, party: Party
) -> None:
    """Raise the party's error where two of our connections meet on one of the server's.

    ``conn`` has no settings yet. The last server connection that a pooler got back is the next that
    it hands out, or it takes turns: whichever it does, the few questions here show it. A pool that
    others keep so busy that they do not is found out when a batch is committed.
    """
    with closing(connect(url, application_name="penstock pooler check", party=party)) as other:
        for _ in range(_TRIES):
            ours = _backend(conn)
            with other.transaction():
                if _backend(other) == ours or _backend(conn) != ours:
                    raise pooled(f"at {url.host}, port {url.port}")


def pooled(where: str) -> DestinationError:
    return DestinationError(
        f"destination postgres: a connection pooler {where} hands out server connections by the "
        "transaction, so session settings that the guarantees rest on would get lost",
        remedy="point destination.url at the server itself, or at a pool in session mode "
        "(PgBouncer: pool_mode = session for this database or user)",
    )


def _backend(conn: psycopg.Connection[tuple[object, ...]]) -> object:
    with answered_within(conn, _ANSWER_SECONDS):
        row = conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    return row and row[0]
