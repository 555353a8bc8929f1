"""COPY by psql: as fast as rows leave a server, or go from one to another."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from psycopg import sql

from bench.process_usage import Usage, usage
from bench.server import BenchDatabase, BenchError

# Bounds by how much an end is seen too late.
_LOOK_SECONDS = 0.005
# Memory is a high-water mark, so that few looks do.
_LOOKS_A_MEASURE = 20


@dataclass
class PsqlRun:
    """What programs that ran side by side took together."""

    seconds: float
    cpu_s: float
    peak_rss_mb: float


@dataclass
class _Program:
    process: subprocess.Popen[str]
    seen: Usage = field(default_factory=Usage)
    cpu_s: float = 0.0


def copy_halves(database: BenchDatabase, table: str, rows: int) -> PsqlRun:
    """Two psql, each with one half of the table's blocks in binary form, to /dev/null."""
    found = database.conn.execute(
        "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int", [table]
    ).fetchone()
    middle = 0 if found is None else int(found[0]) // 2
    half = sql.SQL("\\copy (SELECT * FROM {} WHERE ctid {} {}::tid) TO {} (FORMAT binary)")
    halves = [
        half.format(
            sql.Identifier(table), sql.SQL(side), sql.Literal(f"({middle},0)"), os.devnull
        ).as_string(database.conn)
        for side in ("<", ">=")
    ]
    began = time.monotonic()
    with ExitStack() as stack:
        programs = [
            stack.enter_context(_psql(database, database.url, command)) for command in halves
        ]
        return _ended(programs, programs, began, rows)


def copy_through_pipe(database: BenchDatabase, target_url: str, table: str, rows: int) -> PsqlRun:
    """One psql whose binary COPY goes into that of another, which fills an empty table."""
    there, here = (
        sql.SQL(text).format(sql.Identifier(table)).as_string(database.conn)
        for text in ("COPY {} TO STDOUT (FORMAT binary)", "COPY {} FROM STDIN (FORMAT binary)")
    )
    began = time.monotonic()
    with ExitStack() as stack:
        read, write = os.pipe()
        try:
            reader = stack.enter_context(_psql(database, database.url, there, out=write))
            writer = stack.enter_context(_psql(database, target_url, here, given=read))
        finally:
            # The writer sees its input's end only once nobody else could write to it.
            os.close(read)
            os.close(write)
        return _ended([reader, writer], [writer], began, rows)


@contextmanager
def _psql(
    database: BenchDatabase,
    url: str,
    command: str,
    *,
    given: int = subprocess.DEVNULL,
    out: int = subprocess.PIPE,
) -> Iterator[_Program]:
    """A psql at work; none is left behind when something goes wrong."""
    process = subprocess.Popen(
        [str(database.server.bin_dir / "psql"), "--no-psqlrc", "--dbname", url, "-c", command],
        env=database.client_environment(),
        stdin=given,
        stdout=out,
        text=True,
        start_new_session=True,
    )
    try:
        yield _Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _ended(
    programs: Sequence[_Program], counting: Sequence[_Program], began: float, rows: int
) -> PsqlRun:
    """Wait for all; those that are ``counting`` say how many rows they have seen."""
    running, looks = list(programs), 0
    while running:
        for program in list(running):
            if looks % _LOOKS_A_MEASURE == 0:
                # Nothing is left of its memory once it has ended.
                program.seen = program.seen.at_least(usage(program.process.pid))
            done, status, spent = os.wait4(program.process.pid, os.WNOHANG)
            if done:
                program.process.returncode = os.waitstatus_to_exitcode(status)
                program.cpu_s = spent.ru_utime + spent.ru_stime
                running.remove(program)
        looks += 1
        if running:
            time.sleep(_LOOK_SECONDS)
    seconds = time.monotonic() - began
    for program in programs:
        if program.process.returncode:
            raise BenchError(
                f"psql ended with code {program.process.returncode}.",
                remedy="What it printed above says why.",
            )
    copied = sum(map(_count, counting))
    if copied != rows:
        raise BenchError(
            f"psql copied {copied:,} rows of {rows:,}.",
            remedy="It is a bug of the benchmark: the figures mean nothing.",
        )
    return PsqlRun(
        seconds,
        sum(program.cpu_s for program in programs),
        round(sum(program.seen.peak_rss_mb for program in programs), 1),
    )


def _count(program: _Program) -> int:
    """The number in COPY's own last word, such as COPY 1000."""
    said = program.process.stdout.read() if program.process.stdout is not None else ""
    return int(said.split()[-1]) if said.startswith("COPY ") else 0
