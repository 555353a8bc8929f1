"""A whole database by Postgres's own programs: pg_dump into a folder, pg_restore from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

from bench.psql_copies import PsqlRun
from bench.server import BenchDatabase, BenchError


def dump_and_restore(database: BenchDatabase, target_url: str, jobs: int) -> PsqlRun:
    """One after the other, each with as many jobs: the second needs all of what the first writes.
    Compressed, as it is by default.
    """
    folder = database.folder / "dump"
    programs = database.server.bin_dir
    every = [
        [str(programs / "pg_dump"), "-Fd", f"-j{jobs}", f"--file={folder}", database.url],
        [str(programs / "pg_restore"), "-Fd", f"-j{jobs}", f"--dbname={target_url}", str(folder)],
    ]
    began = time.monotonic()
    try:
        spent = [_run(command, database) for command in every]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    cpu_s, peaks = zip(*spent, strict=True)
    return PsqlRun(time.monotonic() - began, sum(cpu_s), max(peaks))


def _run(command: Sequence[str], database: BenchDatabase) -> tuple[float, float]:
    """What it and its jobs used of the processor, and the memory of the largest of them in MB."""
    process = subprocess.Popen(command, env=database.client_environment())
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(
            f"{command[0]} ended with code {process.returncode}.",
            remedy="What it printed above says why.",
        )
    return used.ru_utime + used.ru_stime, round(used.ru_maxrss / 1024, 1)
