"""Spark's Python worker daemon, with the costs removed that every task would pay, and whose
workers give back what a large task took.

Named by ``spark.python.daemon.module``. Workers are forked from this process, so what is imported
here is imported once. Spark collects garbage after each task: what is frozen is not visited.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import socket
import sys
import zipimport
from collections.abc import Callable
from typing import Any

from penstock.arrow_alone import keep_pandas_out

# What tasks have to leave behind before it is worth the time to give it back: to a worker that has
# had nothing to do for so many seconds, and to any.
_LARGE_BYTES = 16 * 1024 * 1024
_IDLE_SECONDS = 1.0
_MUCH_BYTES = 256 * 1024 * 1024
# glibc's numbers for what is chosen; from the last size on a piece is never kept.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_PIECE_BYTES = 32 * 1024 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _keep_zip_directories() -> None:
    """Read a zip file's directory again only if the file has changed.

    Each task calls ``importlib.invalidate_caches()``, after which Python before 3.12 reads the
    directory of every zip file on the path again: pyspark.zip alone takes 100 ms.
    """
    original = zipimport.zipimporter.invalidate_caches
    seen: dict[str, float] = {}

    def invalidate_caches(self: Any) -> None:
        try:
            changed = os.stat(self.archive).st_mtime
        except OSError:
            changed = -1.0
        if seen.get(self.archive) != changed:
            seen[self.archive] = changed
            original(self)

    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]


def freezing_modules(run_task: Callable[..., int]) -> Callable[..., int]:
    """``run_task``, after which the modules that it imported are frozen.

    Which those are depends on the destination. Only a task that imported something freezes, so that
    what later tasks leave behind is still found.
    """
    known = len(sys.modules)

    def run(*arguments: Any) -> int:
        nonlocal known
        code = run_task(*arguments)
        if len(sys.modules) != known:
            known = len(sys.modules)
            gc.collect()
            gc.freeze()
        return code

    return run


def answering_at_once(run_task: Callable[..., int]) -> Callable[..., int]:
    """``run_task``, in whose time what arrives on its socket is acknowledged at once.

    The JVM sends a task in several small pieces and does not send the next one before the last was
    acknowledged (Nagle), which the kernel likes to put off by 40 ms. The option lasts for a while
    only, so each task sets it anew.
    """
    option = getattr(socket, "TCP_QUICKACK", None)

    def run(connection: socket.socket, *arguments: Any) -> int:
        if option is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, option, 1)
        return run_task(connection, *arguments)

    return run


def keep_freed_memory() -> None:
    """Let the C library keep what is freed for what comes next, in this process and its children.

    By itself it gives large pieces back each time, and the system fills them with zeros anew: a
    tenth of what a task costs. ``giving_back`` says when.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_MMAP_THRESHOLD, _MOST_PIECE_BYTES)
        choose(_TRIM_THRESHOLD, _MUCH_BYTES)


def giving_back(run_task: Callable[..., int]) -> Callable[..., int]:
    """``run_task``, before which memory that earlier tasks took and left is the system's again.

    Arrow and the C library keep what was freed for the next time. That is well while tasks follow
    each other: to give it back and fetch it again costs more than many tasks do. A worker lives as
    long as the pipeline, so it is given back where no task has come for a while, and where it is
    much. Compared is with what was left when that was last done.
    """
    import pyarrow as pa

    pool = pa.default_memory_pool()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    rest = 0

    def run(connection: socket.socket, *arguments: Any) -> int:
        nonlocal rest
        now = resident_bytes()
        rest = rest or now
        left = now - rest
        if left > _MUCH_BYTES or (left > _LARGE_BYTES and not _comes(connection)):
            gc.collect()
            pool.release_unused()
            if trim is not None:
                trim(0)
            rest = resident_bytes()
        return run_task(connection, *arguments)

    return run


def _comes(connection: socket.socket) -> bool:
    """Whether the next task comes soon."""
    readable, _, _ = select.select([connection], [], [], _IDLE_SECONDS)
    return bool(readable)


def resident_bytes() -> int:
    """What this process has in memory; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def main() -> None:
    _keep_zip_directories()
    keep_pandas_out()
    import pyspark.daemon
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker

    import penstock.changelog.segment_run
    import penstock.decode.changes
    import penstock.spark.source
    import penstock.spark.table_reader
    import penstock.spark.task  # noqa: F401 (likewise)

    keep_freed_memory()
    gc.collect()
    gc.freeze()
    pyspark.daemon.worker = answering_at_once(freezing_modules(giving_back(pyspark.daemon.worker)))
    pyspark.daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
