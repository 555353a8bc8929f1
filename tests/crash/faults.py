"""Everything that happens to a pipeline into `postgres`, by name.

Each fault leaves the servers up and the network whole, as whoever runs them would; whether the
pipeline gets up again is its own affair. ``amount``, from 0 to 1, is how long or at which place.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from functools import partial

import psycopg

from tests.crash.into_postgres import IntoPostgres
from tests.crash.penstock_run import Part
from tests.fix_pipeline import wait_until
from tests.tcp_proxy import TcpProxy

Fault = Callable[[IntoPostgres, float], str]
"""Does it, and returns what is to be said of it beyond its name."""

_LONGEST_SECONDS = 3.0


def _kill(part: Part, injured: IntoPostgres, _amount: float) -> str:
    """The driver, or Spark, starts it again; without the JVM the command ends and says so."""
    run = injured.run
    if not run.kill(part):
        return "there was none, as the run had ended"
    if part == "JVM":
        run.wait_gone(60)
        assert run.exit_code == 1, run.output[-3000:]
        assert "Spark's JVM ended unexpectedly" in run.output, run.output[-3000:]
        injured.start()
    return ""


def _kill_holder(injured: IntoPostgres, _amount: float) -> str:
    """Tables with a key go on under another snapshot, the others start again."""
    holder = injured.run.find("snapshot holder")
    if holder is None:
        return "there was none"
    holder.kill()
    return ""


def _kill_driver(injured: IntoPostgres, _amount: float) -> str:
    """JVM and capture must not outlive it."""
    injured.run.kill_driver()
    injured.run.wait_gone()
    injured.start()
    return ""


def _delete_checkpoint(injured: IntoPostgres, _amount: float) -> str:
    injured.run.kill_driver()
    injured.run.wait_gone()
    found = injured.checkpoints()
    for checkpoint in found:
        shutil.rmtree(checkpoint)
    injured.start()
    return f"{len(found)} folders"


def _delete_log(injured: IntoPostgres, _amount: float) -> str:
    """With it goes what was captured and never delivered: Postgres still has that."""
    injured.run.kill_driver()
    injured.run.wait_gone()
    shutil.rmtree(injured.pipeline.log.root.path, ignore_errors=True)
    injured.start()
    return ""


def _failpoint(injured: IntoPostgres, amount: float) -> str:
    """A new life that ends, or loses a part, at a named place."""
    injured.run.kill_driver()
    injured.run.wait_gone()
    name = injured.failpoints[int(amount * len(injured.failpoints))]
    passes = 1 + int(amount * 1000) % 5
    fired = injured.pipeline.folder / f"fired-{uuid.uuid4().hex[:8]}"
    fired.mkdir()
    injured.start(PENSTOCK_FAILPOINTS=f"{name}=kill:{passes}", PENSTOCK_FAILPOINT_DIR=str(fired))
    return f"{name}, pass {passes}"


def _stale_driver(injured: IntoPostgres, amount: float) -> str:
    """A run that was away too long: its locks went with its sessions, another one has taken over,
    and then it is back in the middle of what it did. It has to notice, and end."""
    stale = injured.run
    stale.freeze()
    _end_sessions(_source_url, injured, amount)
    run = injured.start()
    wait_until(lambda: injured.is_locked() or run.exit_code is not None, "the new one has the lock")
    if amount < 0.5:
        held = injured.frontier()
        wait_until(
            lambda: injured.frontier() > held or run.exit_code is not None, "the new one delivers"
        )
    stale.thaw()
    stale.wait_gone(90)
    assert stale.exit_code == 1, stale.output[-3000:]
    return stale.output.splitlines()[-2][:80]


def _crash_source(injured: IntoPostgres, _amount: float) -> str:
    injured.server.kill()
    injured.server.start()
    return ""


def _restart_source(injured: IntoPostgres, _amount: float) -> str:
    injured.server.restart("fast")
    return ""


def _crash_target(injured: IntoPostgres, amount: float) -> str:
    """Away for a moment: whatever is tried meanwhile fails."""
    injured.target.kill()
    return _away(injured, amount)


def _restart_target(injured: IntoPostgres, amount: float) -> str:
    injured.target.stop("fast")
    return _away(injured, amount)


def _away(injured: IntoPostgres, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    time.sleep(seconds)
    injured.target.start()
    return f"away for {seconds:.1f} s"


def _end_sessions(url_of: Callable[[IntoPostgres], str], injured: IntoPostgres, _: float) -> str:
    """Every session of the pipeline, as an administrator does it."""
    with psycopg.connect(url_of(injured), autocommit=True) as conn:
        ended = conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'penstock%'"
        ).rowcount
    return f"{ended} sessions"


def _cut(network_of: Callable[[IntoPostgres], TcpProxy], injured: IntoPostgres, _: float) -> str:
    return f"{network_of(injured).cut()} connections"


def _silence(
    network_of: Callable[[IntoPostgres], TcpProxy], injured: IntoPostgres, amount: float
) -> str:
    seconds = amount * _LONGEST_SECONDS
    network_of(injured).silence(seconds)
    return f"{seconds:.1f} s"


def _refuse(
    network_of: Callable[[IntoPostgres], TcpProxy], injured: IntoPostgres, amount: float
) -> str:
    seconds = amount * _LONGEST_SECONDS
    network_of(injured).refuse()
    time.sleep(seconds)
    network_of(injured).accept()
    return f"{seconds:.1f} s"


def _source_url(injured: IntoPostgres) -> str:
    return injured.url


def _target_url(injured: IntoPostgres) -> str:
    return injured.target_url


def _source_network(injured: IntoPostgres) -> TcpProxy:
    return injured.source_network


def _target_network(injured: IntoPostgres) -> TcpProxy:
    return injured.target_network


FAULTS: dict[str, Fault] = {
    "capture killed": partial(_kill, "capture"),
    "driver killed": _kill_driver,
    "JVM killed": partial(_kill, "JVM"),
    "worker killed": partial(_kill, "worker"),
    "worker daemon killed": partial(_kill, "worker daemon"),
    "stream reader killed": partial(_kill, "stream reader"),
    "checkpoint deleted": _delete_checkpoint,
    "change log deleted": _delete_log,
    "stale driver": _stale_driver,
    "failpoint": _failpoint,
    "another failpoint": _failpoint,
    "source crashed": _crash_source,
    "source restarted": _restart_source,
    "source sessions ended": partial(_end_sessions, _source_url),
    "source connections cut": partial(_cut, _source_network),
    "source silent": partial(_silence, _source_network),
    "source refuses": partial(_refuse, _source_network),
    "destination crashed": _crash_target,
    "destination restarted": _restart_target,
    "destination sessions ended": partial(_end_sessions, _target_url),
    "destination connections cut": partial(_cut, _target_network),
    "destination silent": partial(_silence, _target_network),
    "destination refuses": partial(_refuse, _target_network),
}
COPY_FAULTS = {**FAULTS, "snapshot holder killed": _kill_holder}
"""For a pipeline that copies."""
