"""Connections that die without a word: both sides notice, and what waits for an answer ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.answer_limit import answered_within
from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres import commits
from penstock.destination.postgres.sessions.session import copy_in, open_session
from penstock.destination.postgres.staging.task_writer import kept_session
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.source.postgres import silence
from penstock.source.postgres.answer_watch import ANSWERS
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.source_session import (
    ArrowSession,
    CopySession,
    SessionError,
)
from penstock.testing.change_builder import Column, table
from penstock.testing.contract.deliveries import definition
from tests.fix_pipeline import MakePipeline, wait_until
from tests.fix_target import Target
from tests.tcp_proxy import TcpProxy

ITEMS = table("items", Column("id", "int8", key=True))
_OPTIONS = (
    socket.TCP_KEEPIDLE,
    socket.TCP_KEEPINTVL,
    socket.TCP_KEEPCNT,
    socket.TCP_USER_TIMEOUT,
)
_SETTINGS = (
    "SELECT array_agg(setting::int ORDER BY name) FROM pg_settings"
    " WHERE name LIKE 'tcp_keepalives%' OR name = 'tcp_user_timeout'"
)
_IN_TRANSACTION = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    " AND state = 'idle in transaction' AND pid <> pg_backend_pid()"
)


def here(conn: psycopg.Connection[Any]) -> list[int]:
    with socket.socket(fileno=socket.dup(conn.fileno())) as copy:
        assert copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return [copy.getsockopt(socket.IPPROTO_TCP, option) for option in _OPTIONS]


@pytest.mark.every_postgres
@pytest.mark.parametrize(
    ("limit", "idle", "interval"), [(None, 30, 10), ("12000", 6, 2), ("1000", 1, 1)]
)
def test_every_session_asks_whether_the_other_side_is_there(
    database: str, limit: str | None, idle: int, interval: int
) -> None:
    url = database if limit is None else make_conninfo(database, tcp_user_timeout=limit)
    expected = int(limit or 60000)
    for conn in (
        connect(url),
        connect(url, replication=True),
        open_session(ConnectionUrl(url), "penstock test", {}),
    ):
        with closing(conn):
            assert here(conn) == [idle, interval, 3, expected]
            # By name: count, idle, interval, user_timeout.
            assert conn.execute(_SETTINGS.encode()).fetchone() == ([3, idle, interval, expected],)


def test_so_does_the_one_that_reads_arrow(database: str) -> None:
    with closing(ArrowSession(ConnectionUrl(database))) as session:
        session._cursor.execute(_SETTINGS)
        assert [list(found) for (found,) in session._cursor.fetchall()] == [[3, 30, 10, 60000]]


def test_an_answer_that_somebody_swallows_is_waited_for_no_longer_than_that(database: str) -> None:
    with connect(database) as direct, TcpProxy(direct.info.port) as network:
        conn = connect(make_conninfo(database, port=network.port))
        with answered_within(conn, 30):
            conn.execute("SELECT")
        network.swallow()
        with pytest.raises(psycopg.OperationalError), answered_within(conn, 0.3):
            conn.execute("SELECT")
        assert conn.broken


def test_capture_that_hears_nothing_connects_anew_though_its_old_walsender_lives(
    database: str, make_pipeline: MakePipeline
) -> None:
    """Neither end of its connection is closed, and nobody sends keepalives of their own."""
    with connect(database) as direct, TcpProxy(direct.info.port) as network:
        pipeline = make_pipeline(
            make_conninfo(database, port=network.port, tcp_user_timeout=2000, connect_timeout=2)
        )
        direct.execute("CREATE TABLE public.items (id int PRIMARY KEY)")
        direct.execute(
            "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET wal_sender_timeout = 0',"
            " current_database()); END$$"
        )
        start = pipeline.subscribe().start_lsn
        pipeline.log.set_reader(pipeline.name, Frontier(0, start))
        capture = pipeline.start_capture(PENSTOCK_CADENCE="0.02")
        capture.wait_streaming()
        walsender = pipeline.slot().active_pid
        network.swallow()
        wait_until(lambda: capture.report().get("error"), "capture notices the silence")
        network.accept()
        direct.execute("INSERT INTO public.items VALUES (1)")
        wait_until(
            lambda: pipeline.log.list().segments and pipeline.changes(), "the change has come"
        )
        assert pipeline.slot().active_pid not in (walsender, None)
        assert "was held by walsender" in capture.errors


def test_a_destination_s_sessions_that_rested_for_long_are_not_waited_for(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they are asked would never be answered: somebody on the way has forgotten them."""
    with TcpProxy(target.conn.info.port) as network:
        url = make_conninfo(target.url, port=network.port)
        destination = target.opened(definition(ITEMS), url=url)
        destination.commit([], Watermarks(Frontier(1, 2)))
        writer = destination.writer()
        task = kept_session(writer.url, "task", writer._connect)
        network.swallow()
        network.accept()
        monkeypatch.setattr(silence, "IDLE_SECONDS", 0.1)
        time.sleep(0.2)
        destination.commit([], Watermarks(Frontier(3, 4)))
        destination.prepare([definition(ITEMS)])
        assert kept_session(writer.url, "task", writer._connect) is not task
    assert target.all("SELECT end_lsn::text FROM penstock.progress") == [("0/4",)]


@pytest.mark.parametrize("answer_is_lost", [True, False])
def test_a_commit_whose_answer_was_lost_is_given_up_and_a_long_one_is_not(
    target: Target, monkeypatch: pytest.MonkeyPatch, answer_is_lost: bool
) -> None:
    with TcpProxy(target.conn.info.port) as network:
        url = make_conninfo(target.url, port=network.port, tcp_user_timeout=1000)
        destination = target.opened(definition(ITEMS), url=url)

        def at_work(place: str) -> None:
            if place != "postgres.merged":
                return
            if answer_is_lost:
                network.swallow()
                threading.Timer(0.5, network.accept).start()
            with destination._session() as conn:
                conn.execute("SELECT pg_sleep(3)")

        monkeypatch.setattr(commits, "failpoint", at_work)
        if answer_is_lost:
            with pytest.raises(DestinationUnavailable):
                destination.commit([], Watermarks(Frontier(1, 2)))
            # Nobody told the server. What it keeps locked would hold up the next commit.
            wait_until(
                lambda: not target.all(_IN_TRANSACTION), "the lost session is ended", timeout=60
            )
            monkeypatch.undo()
        destination.commit([], Watermarks(Frontier(1, 2)))
        assert destination.committed() == Watermarks(Frontier(1, 2))


def test_so_is_whatever_else_a_session_waits_for_and_rows_may_be_long_in_coming(
    target: Target,
) -> None:
    """A task that waits for ever would hold up its batch, and nobody could end that."""
    target.conn.execute("CREATE TABLE public.lines (line text)")
    with TcpProxy(target.conn.info.port) as network:
        url = ConnectionUrl(make_conninfo(target.url, port=network.port, tcp_user_timeout=1000))

        def slow() -> Iterator[memoryview]:
            yield memoryview(b"one\n")
            time.sleep(3)
            yield memoryview(b"two\n")

        def lost() -> Iterator[memoryview]:
            yield memoryview(b"three\n")
            network.swallow()
            threading.Timer(0.5, network.accept).start()

        with closing(open_session(url, "penstock test", {})) as conn:
            copy_in(conn, [(b"COPY public.lines FROM STDIN", slow())])
            with pytest.raises(psycopg.OperationalError):
                copy_in(conn, [(b"COPY public.lines FROM STDIN", lost())])
        with closing(open_session(url, "penstock test", {})) as conn:
            network.swallow()
            threading.Timer(0.5, network.accept).start()
            with pytest.raises(psycopg.OperationalError):
                conn.execute("SELECT")
    assert target.all("SELECT line FROM lines") == [("one",), ("two",)]


def test_the_server_says_what_it_is_at_whatever_role_a_session_has_taken(database: str) -> None:
    """To another role than the one that logged in it does not."""
    url = make_conninfo(database, tcp_user_timeout=1000, options="-c role=pg_read_all_data")
    with closing(connect(url)) as conn:
        served = ANSWERS._served[conn]
        wait_until(served.waits_for_us, "it has answered, and heard nothing since", timeout=10)
        served.end()
        with pytest.raises(psycopg.OperationalError):
            wait_until(lambda: conn.execute("SELECT") is None, "it is ended", timeout=10)


def test_a_server_that_does_not_answer_anybody_is_given_up(database: str) -> None:
    """It cannot be asked what it is at, for new connections are not answered either."""
    with connect(database) as direct, TcpProxy(direct.info.port) as network:
        url = make_conninfo(database, port=network.port, tcp_user_timeout=1000, connect_timeout=2)
        with closing(connect(url)) as conn:
            network.swallow()
            with pytest.raises(psycopg.OperationalError):
                conn.execute("SELECT")


def test_so_is_a_chunk_of_the_source_and_a_slow_one_is_not(database: str) -> None:
    copy = "COPY (SELECT pg_sleep(2)::text) TO STDOUT"
    with connect(database) as direct, TcpProxy(direct.info.port) as network:
        url = ConnectionUrl(make_conninfo(database, port=network.port, tcp_user_timeout=1000))
        with closing(CopySession(url)) as session:
            assert list(session.copy(copy)) == [b"\n"]
            network.swallow()
            threading.Timer(0.5, network.accept).start()
            with pytest.raises(SessionError) as caught:
                list(session.copy(copy))
            assert caught.value.is_loss
