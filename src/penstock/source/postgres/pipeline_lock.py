"""One run of a pipeline at a time, held as an advisory lock in the source database.

Anybody who may connect can take any advisory lock, and sees which ones are taken. So the lock of a
pipeline is not one key but many, of which a holder takes one at random; what counts is who holds
one of them. Sessions of roles that could not run a pipeline count for nothing. Whoever wants the
lock shows his key first and then looks for others: of two that do so at once, each sees the other.

The lock has a lease. Whoever holds it asks the server something every few seconds, and the server
shows when a session last did so. A session that has asked nothing for the length of the lease is
what a lost machine left, or what a cut network hides: whoever wants the lock ends it.
"""

from __future__ import annotations

import hashlib
import logging
import random
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg

from penstock.answer_limit import answered_within
from penstock.cadence import paced
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import PipelineBusy, SourceUnavailable
from penstock.source.postgres.connect import connect
from penstock.source.postgres.logged_in import as_logged_in
from penstock.source.postgres.silence import silence_limit
from penstock.source.postgres.source_errors import source_errors

_log = logging.getLogger(__name__)

# What other roles do, and since when, a role without pg_read_all_stats does not see. ``role`` is
# what our settings have taken, if they have: others may have it, too.
_HOLDER = """
SELECT l.pid, a.backend_start::text, a.application_name, a.client_addr::text,
       coalesce(a.usename = current_user, false), a.state,
       extract(epoch FROM clock_timestamp() - a.state_change)::float8
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_roles r ON r.oid = a.usesysid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND ((l.classid::bigint << 32) | l.objid::bigint) BETWEEN %(first)s::bigint AND %(last)s::bigint
   -- A session that is not shown may be ours. Those who may replicate, or write what the pipeline
   -- keeps, could stop it anyway.
   AND (a.pid IS NULL OR r.rolsuper OR r.rolreplication OR r.rolname = current_user
        OR pg_has_role(r.oid, %(role)s::text, 'MEMBER')
        OR has_schema_privilege(r.oid, to_regnamespace('penstock')::oid, 'CREATE')
        OR EXISTS (SELECT FROM pg_roles m WHERE m.rolname = 'rds_replication'
                                            AND pg_has_role(r.oid, m.oid, 'MEMBER')))
 ORDER BY a.backend_start
 LIMIT 1
"""

# How many keys a pipeline's lock has, in bits: more than a stranger could take one by one.
_KEY_BITS = 24

_LOOK_SECONDS = 0.5
RETAKEN_SECONDS = 2 * _LOOK_SECONDS
"""How long the lock of a running pipeline is free at most, where its connection was cut and the
server answers.
"""
BEAT_SECONDS = paced(5.0)
"""How often a holder shows that it lives."""
LEASE_SECONDS = paced(60.0)
"""A holder that has not shown it for this long does not live."""
LOCK_SECONDS = 3.0
"""How long taking the lock is tried: the server needs a moment to notice that a holder is gone."""
_UNLOCK_SECONDS = 5.0
_TURN_SECONDS = 0.1


@dataclass(frozen=True)
class _Holder:
    """A session that has the lock, as the server shows it. ``silent``: for how many seconds it has
    asked nothing, None where that is hidden from us.
    """

    pid: int
    started: str | None
    application: str | None
    client: str | None
    is_our_role: bool
    state: str | None
    silent: float | None

    @property
    def is_stale(self) -> bool:
        return self.is_our_role and self._rests and (self.silent or 0.0) > LEASE_SECONDS

    def is_lost_soon(self, seconds: float) -> bool:
        """Whether waiting for its lease makes sense: one of ours, seen silent for ``seconds``."""
        return self.is_our_role and self._rests and (self.silent or 0.0) >= seconds

    @property
    def _rests(self) -> bool:
        return self.state is not None and self.state.startswith("idle")

    def __str__(self) -> str:
        return (
            f"Postgres backend {self.pid} (application {self.application or 'unknown'}, client "
            f"{self.client or 'on the local socket, or hidden'}, connected since "
            f"{self.started or 'unknown'})"
        )


class PipelineLock:
    """Held from ``with`` to the end of the block, or to the end of the connection if that is first.

    It goes when the connection goes, so it protects against a second start by mistake. Against a
    holder that lost its connection without knowing, epochs in the log and the destination do.
    ``what`` tells two locks of one pipeline apart. Taking it is tried for ``patience`` seconds,
    because the server needs a moment to notice that a killed holder is gone, and for longer where
    the holder shows no sign of life; with 0 only once. ``beats``: a thread shows that we live. A
    caller whose threads share the connection in ways of their own sees to that himself.
    """

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        name: str,
        *,
        what: str = "run",
        patience: float = LOCK_SECONDS,
        beats: bool = True,
    ) -> None:
        self._conn = conn
        self._name = name
        self._what = what
        self._patience = patience
        self._beat = _Beat(conn) if beats else None
        digest = hashlib.sha256(f"penstock:{what}:{name}".encode()).digest()
        self._first = int.from_bytes(digest[:8], "big", signed=True) >> _KEY_BITS << _KEY_BITS
        self._key: int | None = None

    def __enter__(self) -> Self:
        with source_errors(f"taking the lock of pipeline {self._name}"):
            self._take()
        if self._beat is not None:
            self._beat.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._beat is not None:
            self._beat.stop()
        # A connection that is gone has given the lock back already, or its lease runs out.
        with (
            suppress(psycopg.OperationalError),
            answered_within(self._conn, _UNLOCK_SECONDS),
        ):
            self._let_go()

    def _take(self) -> None:
        self._expect_primary()
        began, told = time.monotonic(), False
        while True:
            # Before the look: an answer that comes late says how silent the holder was then.
            waited = time.monotonic() - began
            holder = self._holder() or self._show_key()
            if holder is None:
                return
            if holder.is_stale:
                self._end(holder)
            elif waited >= self._patience:
                # Two clocks are compared: what it did just before we came is no sign of life.
                since = waited - _TURN_SECONDS
                if not self._patience or not holder.is_lost_soon(since):
                    raise self._refusal(holder)
                if not told:
                    told = True
                    _log.warning(
                        "pipeline %s waits: its %s lock is held by %s, which has been silent for "
                        "%.0f s; after %.0f s it counts as lost, and is ended",
                        *(self._name, self._what, holder, holder.silent, LEASE_SECONDS),
                        extra={"event": "lock_waits"},
                    )
            # Two that came at once do not come at once again.
            time.sleep(_TURN_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)

    def _expect_primary(self) -> None:
        """Locks of a standby guard nothing: the primary has others. And who came before it was
        promoted would go on in its new timeline, and take that for the old one.
        """
        row = self._conn.execute("SELECT pg_is_in_recovery()").fetchone()
        if row == (True,):
            raise SourceUnavailable(
                f"Pipeline {self._name} cannot go on: the source is a standby, or still in "
                "recovery, and takes no writes.",
                remedy="Wait until it is promoted, or point source.url at the primary.",
            )

    def _show_key(self) -> _Holder | None:
        """Take a key, and the lock with it unless somebody else has shown one: who that is."""
        while self._key is None:
            key = self._first + secrets.randbelow(2**_KEY_BITS)
            row = self._conn.execute("SELECT pg_try_advisory_lock(%s::bigint)", [key]).fetchone()
            # One that is taken is a stranger's: there are others.
            self._key = key if row == (True,) else None
        other = self._holder()
        if other is not None:
            self._let_go()
        return other

    def _let_go(self) -> None:
        if self._key is not None:
            self._conn.execute("SELECT pg_advisory_unlock(%s::bigint)", [self._key])
            self._key = None

    def _holder(self) -> _Holder | None:
        """Who else holds the lock, or is about to."""
        taken = self._conn.execute("SELECT current_user::text").fetchone()
        assert taken is not None  # noqa: S101 (a SELECT without FROM has one row)
        last = self._first + 2**_KEY_BITS - 1
        keys = {"first": self._first, "last": last, "role": taken[0]}
        with as_logged_in(self._conn):
            row = self._conn.execute(_HOLDER, keys).fetchone()
        return None if row is None else _Holder(*row)

    def _end(self, holder: _Holder) -> None:
        _log.warning(
            "pipeline %s: its %s lock was held by %s, which has been silent for %.0f s: a machine "
            "or a connection that was lost; that session is ended",
            *(self._name, self._what, holder, holder.silent),
            extra={"event": "lock_taken_over"},
        )
        # Looked at again: it may have shown life since.
        with as_logged_in(self._conn):
            self._conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s"
                " AND backend_start::text = %s AND state LIKE 'idle%%'"
                " AND clock_timestamp() - state_change > make_interval(secs => %s)",
                [holder.pid, holder.started, LEASE_SECONDS],
            )

    def _refusal(self, holder: _Holder) -> PipelineBusy:
        return PipelineBusy(
            f"Pipeline {self._name} is busy: its {self._what} lock is held by {holder}.",
            remedy="Stop the other penstock process, or wait for it. If it is gone and only its "
            "connection is left: SELECT pg_terminate_backend(<pid>).",
        )


class _Beat:
    """Asks the server something now and then, whatever else the process is busy with."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(_TURN_SECONDS)

    def _run(self) -> None:
        while not self._ending.wait(BEAT_SECONDS):
            # Whoever works with the connection finds out by himself what is wrong with it.
            with suppress(psycopg.Error):
                self._conn.execute("SELECT")
            if self._conn.closed:
                return


class KeptLock:
    """The lock of a pipeline that runs, with a connection of its own.

    The server may be restarted while the pipeline goes on. Then ``keep`` connects anew and takes
    the lock again; if somebody else has it by then, this pipeline has to end.
    """

    def __init__(
        self, url: ConnectionUrl, name: str, application: str, *, what: str = "run"
    ) -> None:
        self._url = url
        self._name = name
        self._what = what
        self._application = application
        self._next_look = 0.0
        self.limit = silence_limit(url)
        """How long the answer to a short question may take."""
        self.conn: psycopg.Connection[Any]
        self._lock: PipelineLock

    def __enter__(self) -> Self:
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, traceback)
        self.conn.close()

    def keep(self) -> None:
        """Called often; looks now and then. A server that is away is left to come back."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        try:
            with answered_within(self.conn, self.limit):
                self.conn.execute("SELECT")
            return
        except psycopg.OperationalError:
            self.conn.close()
        with suppress(SourceUnavailable):
            self._take()

    def _take(self) -> None:
        conn = connect(self._url, application_name=self._application)
        try:
            self._lock = PipelineLock(conn, self._name, what=self._what).__enter__()
        except BaseException:
            conn.close()
            raise
        self.conn = conn
