"""Limits on silence: whichever side of a connection is gone without a word, the other one notices.

Keepalives and ``tcp_user_timeout`` see to that for whatever a session does, however long it takes.
Where a proxy stands in between, it goes on to answer them for a server that is gone. So short
questions have a limit of their own, and a session that has rested for long is not asked any more.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import psycopg

from penstock.cadence import paced
from penstock.config.connection_url import ConnectionUrl

_CONNECT_SECONDS = 10
SILENCE_SECONDS = 60.0
"""How long the other side may be silent, though asked, before a connection counts as lost. A URL
with ``tcp_user_timeout`` sets another limit.
"""
IDLE_SECONDS = paced(30.0)
"""A session that was kept, and idle, for longer may have died without a word: it is made anew."""
_TCP_INFO_LAST_DATA_RECV = 52


def session_parameters(url: ConnectionUrl, application_name: str) -> dict[str, Any]:
    """What libpq is told beside the URL, which wins: a name, and how long to wait for an answer."""
    limit = silence_limit(url)
    wanted = {
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": _whole(limit / 2),
        "keepalives_interval": _whole(limit / 6),
        "keepalives_count": 3,
        "tcp_user_timeout": int(limit * 1000),
    }
    ours = {name: value for name, value in wanted.items() if not url.has(name)}
    return {"fallback_application_name": application_name, **ours}


def server_settings(url: ConnectionUrl) -> str:
    """The query that makes the server notice that we are gone, however our machine went."""
    limit = silence_limit(url)
    wanted = {
        "tcp_keepalives_idle": _whole(limit / 2),
        "tcp_keepalives_interval": _whole(limit / 6),
        "tcp_keepalives_count": 3,
        "tcp_user_timeout": int(limit * 1000),
    }
    calls = (f"pg_catalog.set_config('{name}', '{it}', false)" for name, it in wanted.items())
    return f"SELECT {', '.join(calls)}"


def silence_limit(url: ConnectionUrl) -> float:
    """How many seconds the other side may be silent, though asked."""
    return url.milliseconds("tcp_user_timeout") / 1000 or SILENCE_SECONDS


def _whole(seconds: float) -> int:
    return max(1, round(seconds))


def has_rested(conn: psycopg.Connection[Any]) -> bool:
    """Whether the server has said nothing for so long that it may be gone: nobody should wait for
    an answer through this connection any more.
    """
    with socket.socket(fileno=os.dup(conn.fileno())) as ours:
        if ours.family == socket.AF_UNIX:
            return False
        info = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (milliseconds,) = struct.unpack_from("=I", info, _TCP_INFO_LAST_DATA_RECV)
    return bool(milliseconds / 1000 > IDLE_SECONDS)
