"""Conditions under which capture must not go on: it stops with a clear error and never loops."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import make_conninfo

from penstock.changelog.writer import LogWriter
from penstock.model.error_transport import error_from_json
from penstock.model.errors import SlotError
from penstock.source.postgres import pipeline_lock
from penstock.source.postgres.capture import process
from penstock.source.postgres.capture.stream import ReplicationStream
from penstock.source.postgres.pipeline_lock import PipelineLock
from penstock.source.postgres.subscription.slot import end_own_walsender
from tests.application_session import connect
from tests.fix_pipeline import CaptureProcess, MakePipeline, PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


def kind_of(report: dict[str, Any]) -> str:
    """The error that capture ended with."""
    return type(error_from_json(report)).__name__


@pytest.fixture
def stopped(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A pipeline whose log holds something, and whose capture does not run."""
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    pipeline.execute("INSERT INTO items VALUES (1, 'a')")
    assert len(pipeline.capture_all()) == 1
    return pipeline


def gives_up(capture: CaptureProcess) -> dict[str, str]:
    """Its last words, once it has ended with exit code 1."""
    assert capture.wait() == 1, capture.errors
    report = capture.report()
    assert report["state"] == "failed"
    assert report["remedy"]
    # The supervisor tells the person, so it says nothing itself.
    assert "Error" not in capture.errors
    return report


def drop_slot(pipeline: PipelineUnderTest) -> None:
    name = pipeline.slot().name
    pipeline.execute(f"SELECT pg_drop_replication_slot('{name}')")


@pytest.mark.every_postgres
def test_the_slot_was_dropped_while_stopped(stopped: PipelineUnderTest) -> None:
    drop_slot(stopped)
    report = gives_up(stopped.start_capture())
    assert kind_of(report) == "SlotError"
    assert "does not exist" in report["error"]
    assert "penstock destroy" in report["remedy"]


@pytest.mark.every_postgres
def test_the_slot_is_dropped_while_running(stopped: PipelineUnderTest) -> None:
    capture = stopped.start_capture()
    capture.wait_streaming()
    slot = stopped.slot()
    with psycopg.connect(stopped.url, autocommit=True) as conn:
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [slot.active_pid])

        def dropped() -> bool:
            # Capture may be back sooner than we are.
            try:
                conn.execute("SELECT pg_drop_replication_slot(%s)", [slot.name])
            except psycopg.errors.ObjectInUse:
                conn.execute(
                    "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots"
                    " WHERE slot_name = %s AND active_pid IS NOT NULL",
                    [slot.name],
                )
                return False
            return True

        wait_until(dropped, "the slot is dropped")
    report = gives_up(capture)
    assert kind_of(report) == "SlotError"
    assert slot.name in report["error"]


@pytest.mark.every_postgres
def test_the_slot_was_moved_past_us(stopped: PipelineUnderTest) -> None:
    stopped.execute("INSERT INTO items VALUES (2, 'nobody will ever see me')")
    with psycopg.connect(stopped.url, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [stopped.slot().name]
        )
    held = stopped.log.list().frontier
    assert held is not None
    assert stopped.confirmed > held.end_lsn
    report = gives_up(stopped.start_capture())
    assert kind_of(report) == "SlotError"
    assert "was moved" in report["error"]
    assert stopped.log.list().frontier == held


def test_the_slot_is_moved_while_we_take_it(
    stopped: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an earlier capture process that still has it, and does not see yet that it was replaced.
    Postgres goes on behind that without a word.
    """
    start = ReplicationStream.start

    def moved(stream: ReplicationStream, slot: str, *rest: Any, **more: Any) -> None:
        stopped.execute("INSERT INTO items VALUES (2, 'nobody will ever see me')")
        stopped.execute(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
        start(stream, slot, *rest, **more)

    monkeypatch.setattr(ReplicationStream, "start", moved)
    with pytest.raises(SlotError, match="was moved"), stopped.capturing() as capture:
        wait_until(capture.done, "capture gives up")


@pytest.mark.every_postgres
def test_the_slot_was_moved_but_not_past_us(stopped: PipelineUnderTest) -> None:
    held = stopped.log.list().frontier
    assert held is not None
    with psycopg.connect(stopped.url, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_replication_slot_advance(%s, ('0/0'::pg_lsn + %s::numeric)::pg_lsn)",
            [stopped.slot().name, held.end_lsn],
        )
    stopped.execute("INSERT INTO items VALUES (2, 'b')")
    assert [(c.new or {})["id"] for c in stopped.capture_all()] == ["1", "2"]


@pytest.mark.every_postgres
def test_the_slot_is_lost(fresh_server: FreshServer, make_pipeline: MakePipeline) -> None:
    server = fresh_server(
        max_slot_wal_keep_size="1MB", wal_keep_size="0", min_wal_size="32MB", max_wal_size="32MB"
    )
    pipeline = make_pipeline(server.create_database("shop"))
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    pipeline.execute("INSERT INTO items VALUES (1, 'a')")
    assert len(pipeline.capture_all()) == 1

    def lost() -> bool:
        pipeline.execute(
            "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))"
            " FROM generate_series(1, 20)",
            "SELECT pg_switch_wal()",
            "CHECKPOINT",
        )
        return pipeline.slot().is_lost

    wait_until(lost, "the server removes WAL that the slot needs")
    report = gives_up(pipeline.start_capture())
    assert kind_of(report) == "SlotError"
    assert "lost" in report["error"]
    assert "max_slot_wal_keep_size" in report["remedy"]


@pytest.mark.parametrize(
    ("name", "value"), [("system_id", "7000000000000000000"), ("timeline", 99)]
)
def test_the_log_is_from_another_system(
    stopped: PipelineUnderTest, name: str, value: object
) -> None:
    path = Path(stopped.log.root.full("log.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    report = gives_up(stopped.start_capture())
    assert kind_of(report) == "IdentityChanged"
    assert name in report["error"]
    assert str(value) in report["error"]


@pytest.mark.every_postgres
def test_no_subscription_at_all(pipeline: PipelineUnderTest) -> None:
    report = gives_up(pipeline.start_capture())
    assert kind_of(report) == "SlotError"
    assert "penstock init" in report["remedy"]


@pytest.mark.every_postgres
def test_somebody_else_holds_the_slot(
    stopped: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_SLOT_BUSY_SECONDS", 0.5)
    with closing(psycopg.connect(stopped.url, autocommit=True, replication="database")) as other:
        slot = stopped.slot().name
        result = other.pgconn.exec_(
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0"
            f" (proto_version '1', publication_names 'penstock_{stopped.name}')".encode()
        )
        assert result.status == pq.ExecStatus.COPY_BOTH
        pid = other.info.backend_pid
        with pytest.raises(SlotError, match=str(pid)) as caught, stopped.capturing() as capture:
            wait_until(capture.done, "capture gives up")
        assert "pg_stat_activity" in caught.value.remedy
    # With the other one gone, everything is as before.
    stopped.execute("INSERT INTO items VALUES (2, 'b')")
    assert len(stopped.capture_all()) == 2


@pytest.mark.every_postgres
def test_what_a_lost_machine_left_of_capture_is_ended(
    stopped: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its walsender has the slot, its other session the lock, and nobody is behind them."""
    monkeypatch.setattr(process, "_SLOT_BUSY_SECONDS", 0.5)
    monkeypatch.setattr(pipeline_lock, "LEASE_SECONDS", 1.0)
    name = f"penstock {stopped.name} capture"
    with (
        _streaming(stopped, name),
        closing(connect(stopped.url, application_name=name)) as holder,
    ):
        PipelineLock(holder, stopped.name, what="capture", beats=False).__enter__()
        stopped.execute("INSERT INTO items VALUES (2, 'b')")
        assert len(stopped.capture_all()) == 2
        with pytest.raises(psycopg.OperationalError):
            holder.execute("SELECT")


def test_so_is_its_walsender_whatever_role_sessions_have_taken(stopped: PipelineUnderTest) -> None:
    """To another one than that which logged in the server does not say whose it is."""
    name = f"penstock {stopped.name} capture"
    url = make_conninfo(stopped.url, options="-c role=pg_read_all_data")
    with _streaming(stopped, name), closing(connect(url, application_name=name)) as conn:
        assert end_own_walsender(conn, stopped.slot().name) is not None
        assert stopped.slot().active_pid is None


@contextmanager
def _streaming(stopped: PipelineUnderTest, name: str) -> Iterator[None]:
    """Somebody has the slot."""
    with closing(connect(stopped.url, replication=True, application_name=name)) as walsender:
        result = walsender.pgconn.exec_(
            f"START_REPLICATION SLOT {stopped.slot().name} LOGICAL 0/0"
            f" (proto_version '1', publication_names 'penstock_{stopped.name}')".encode()
        )
        assert result.status == pq.ExecStatus.COPY_BOTH
        yield


@pytest.mark.every_postgres
def test_a_second_capture_is_refused(stopped: PipelineUnderTest) -> None:
    capture = stopped.start_capture()
    capture.wait_streaming()
    # By hand, so it speaks for itself.
    second = stopped.start_capture(supervised=False)
    assert second.wait() == 1
    assert "capture lock is held by Postgres backend" in second.errors
    assert "What to do: Stop the other" in second.errors
    assert "Traceback" not in second.errors
    # The first one is none the worse for it.
    stopped.execute("INSERT INTO items VALUES (2, 'b')")
    stopped.sync(capture)
    assert len(stopped.changes()) == 2
    assert capture.stop() == 0


def test_a_stale_writer_is_fenced(stopped: PipelineUnderTest) -> None:
    held = stopped.log.list().frontier
    capture = stopped.start_capture()
    capture.wait_streaming()
    LogWriter(stopped.log)
    stopped.execute("INSERT INTO items VALUES (2, 'b')")
    report = gives_up(capture)
    assert kind_of(report) == "Fenced"
    assert "taken over" in report["error"]
    assert stopped.log.list().frontier == held
    # Who comes next has it all.
    assert len(stopped.capture_all()) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_the_log_cannot_be_written(stopped: PipelineUnderTest) -> None:
    segments = Path(stopped.log.segments.path)
    capture = stopped.start_capture()
    capture.wait_streaming()
    segments.chmod(0o500)
    try:
        stopped.execute("INSERT INTO items VALUES (2, 'b')")
        report = gives_up(capture)
    finally:
        segments.chmod(0o700)
    assert kind_of(report) == "LogError"
    assert len(stopped.capture_all()) == 2
