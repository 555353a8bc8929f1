"""Who runs tasks, and how much this machine's Python workers have used of the processor."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pyspark import SparkContext

from penstock.spark.jvm import JVM_GONE

_PROCESSES = Path("/proc")
# Of /proc/<pid>/stat, behind the name in brackets: the parent, and the time of the process and of
# those of its children that have ended.
_PARENT, _TIMES = 1, slice(11, 15)


def local_jvm(context: SparkContext) -> int | None:
    """The process in which tasks run, where that is a child of ours; None on a cluster."""
    process = getattr(context._gateway, "proc", None)
    is_here = (context.master or "").startswith("local")
    return process.pid if is_here and process is not None else None


def executor_count(context: SparkContext) -> int | None:
    """How many executors a cluster has given; None where there is none, or it does not say."""
    if (context.master or "").startswith("local"):
        return None
    with suppress(*JVM_GONE):
        # The driver is in it, too.
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
    return None


def workers_time(jvm: int) -> int | None:
    """In clock ticks; None where the system does not tell. It grows while any of them works."""
    parents, times = {}, {}
    try:
        for process in _PROCESSES.glob("[0-9]*"):
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(process.name)] = int(fields[_PARENT])
            times[int(process.name)] = sum(map(int, fields[_TIMES]))
    except OSError:
        return None
    return sum(used for pid, used in times.items() if _is_below(pid, jvm, parents)) or None


def _is_below(pid: int, above: int, parents: dict[int, int]) -> bool:
    while (pid := parents.get(pid, 0)) > 1:
        if pid == above:
            return True
    return False
