"""Everything that happens to a pipeline into `postgres`, by name.

Each fault leaves the servers up and the network whole, as whoever runs them would; whether the
pipeline gets up again is its own affair. ``amount``, from 0 to 1, is how long or at which place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from tests.crash.into_postgres import IntoPostgres
from tests.crash.process_faults import (
    crash_source,
    delete_log,
    end_sessions,
    failpoint,
    kill,
    kill_driver,
    restart_source,
    stale_driver,
)
from tests.tcp_proxy import TcpProxy

Fault = Callable[[IntoPostgres, float], str]
"""Does it, and returns what is to be said of it beyond its name."""

_LONGEST_SECONDS = 3.0


def _kill_holder(injured: IntoPostgres, _amount: float) -> str:
    """Tables with a key go on under another snapshot, the others start again."""
    holder = injured.run.find("snapshot holder")
    if holder is None:
        return "there was none"
    holder.kill()
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
    return end_sessions(url_of(injured))


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
    "capture killed": partial(kill, "capture"),
    "driver killed": kill_driver,
    "JVM killed": partial(kill, "JVM"),
    "worker killed": partial(kill, "worker"),
    "worker daemon killed": partial(kill, "worker daemon"),
    "change log deleted": delete_log,
    "stale driver": stale_driver,
    "failpoint": failpoint,
    "another failpoint": failpoint,
    "source crashed": crash_source,
    "source restarted": restart_source,
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
