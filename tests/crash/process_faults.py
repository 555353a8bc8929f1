"""What happens to the processes of any pipeline, and to its source.

``amount``, from 0 to 1, is at which place or how long.
"""

from __future__ import annotations

import errno
import time
from contextlib import suppress

import psycopg

from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.penstock_run import PATIENCE, Part, PenstockCapture
from tests.fix_pipeline import wait_until

_LONGEST_SECONDS = 4.0
# The second one where it had only begun to start.
_WITHOUT_JVM = ("Spark's JVM ended unexpectedly", "Spark's JVM ended before it could be used")


def kill(part: Part, injured: InjuredPipeline, _amount: float) -> str:
    """The driver, or Spark, starts it again; without the JVM the command ends and says so."""
    run = injured.run
    if not run.kill(part):
        return "there was none, as the run had ended"
    if part == "JVM":
        run.wait_gone()
        assert run.exit_code == 1, run.output[-3000:]
        assert any(said in run.output for said in _WITHOUT_JVM), run.output[-3000:]
        injured.start()
    return ""


def kill_driver(injured: InjuredPipeline, _amount: float) -> str:
    """JVM and capture must not outlive it."""
    injured.run.kill_driver()
    injured.run.wait_gone()
    injured.start()
    return ""


def delete_log(injured: InjuredPipeline, _amount: float) -> str:
    """With it goes what was captured and never delivered: Postgres still has that."""
    injured.run.kill_driver()
    injured.run.wait_gone()
    wait_until(lambda: _is_destroyed(injured), "the log is gone", PATIENCE)
    injured.start()
    return ""


def _is_destroyed(injured: InjuredPipeline) -> bool:
    """The holder of a snapshot may live, and write there at the same moment."""
    with suppress(FileNotFoundError):
        try:
            injured.pipeline.log.root.destroy()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
    return True


def failpoint(injured: InjuredPipeline, amount: float) -> str:
    """A new life that ends, or loses a part, at a named place."""
    injured.run.kill_driver()
    injured.run.wait_gone()
    name = injured.failpoints[int(amount * len(injured.failpoints))]
    passes = 1 + int(amount * 1000) % 5
    injured.start_to_fail(name, passes)
    return f"{name}, pass {passes}"


def stale_driver(injured: InjuredPipeline, amount: float) -> str:
    """A run that was away too long: its locks went with its sessions, another one has taken over,
    and then it is back in the middle of what it did. It has to notice, and end.

    A failpoint of an earlier fault may lie on its way: before this one, or when it is back.
    """
    if injured.run.ended_at_failpoint:
        injured.start_again_at_failpoint()
        injured.wait_delivering()
    stale = injured.run
    stale.freeze()
    end_sessions(injured.url)
    run = injured.start()
    wait_until(
        lambda: injured.is_locked() or run.exit_code is not None,
        "the new one has the lock",
        PATIENCE,
    )
    if amount < 0.5:
        held = injured.frontier()
        wait_until(
            lambda: injured.frontier() > held or run.exit_code is not None,
            "the new one delivers",
            PATIENCE,
        )
    stale.thaw()
    stale.wait_gone()
    if stale.ended_at_failpoint:
        return "it died at an earlier failpoint"
    assert stale.exit_code == 1, stale.output[-3000:]
    return stale.output.splitlines()[-2][:80]


def second_capture(injured: InjuredPipeline, amount: float) -> str:
    """The session with capture's lock ends while its walsender lives, and somebody else captures
    for a while. Whatever the first one writes meanwhile, one of them counts. The run goes on by
    itself, or says that another one captures.
    """
    run = injured.run
    capture_meanwhile(injured, amount)
    committed = injured.pipeline.wal_end()
    wait_until(
        lambda: run.exit_code is not None or injured.frontier().commit_lsn > committed,
        "the run goes on, or ends",
        PATIENCE,
    )
    if run.exit_code is None:
        return "the run went on"
    run.wait_gone()
    says_who = ("taken over", "captures", "its capture lock is held by")
    assert any(why in run.output for why in says_who), run.output[-3000:]
    injured.start()
    return "the run ended"


def capture_meanwhile(injured: InjuredPipeline, amount: float) -> None:
    """The session with capture's lock ends, and somebody else captures for a while."""
    with psycopg.connect(injured.url, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ="
            " 'client backend' AND datname = current_database()"
            " AND application_name LIKE 'penstock % capture'"
        )
    second = PenstockCapture(injured.pipeline.file)
    try:
        time.sleep(2 + amount * _LONGEST_SECONDS)
    finally:
        second.end()


def crash_source(injured: InjuredPipeline, _amount: float) -> str:
    injured.server.kill()
    injured.server.start()
    return ""


def restart_source(injured: InjuredPipeline, _amount: float) -> str:
    injured.server.restart("fast")
    return ""


def end_sessions(url: str) -> str:
    """Every session of the pipeline, as an administrator does it."""
    with psycopg.connect(url, autocommit=True) as conn:
        ended = conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'penstock%'"
        ).rowcount
    return f"{ended} sessions"
