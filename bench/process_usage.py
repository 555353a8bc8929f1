"""CPU time and peak memory of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_HOLDER = "penstock.source.postgres.snapshot.holder_process"
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What a process, or several, used since their start. Nothing for one that is gone."""

    cpu_seconds: float = 0.0
    peak_rss_mb: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cpu_seconds + other.cpu_seconds, round(self.peak_rss_mb + other.peak_rss_mb, 1)
        )

    def at_least(self, other: Usage) -> Usage:
        """The greater of each: the later of two looks, also where the process is gone by then."""
        return Usage(
            max(self.cpu_seconds, other.cpu_seconds), max(self.peak_rss_mb, other.peak_rss_mb)
        )


def usage(pid: int) -> Usage:
    """A process and those of its children that it has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return Usage()
    return Usage(cpu_seconds_of(stat), peak_rss_mb_of(status))


def cpu_seconds_of(stat: str) -> float:
    """User and system time from the text of /proc/PID/stat, waited-for children included."""
    # The second field is the program's name in parentheses, which may hold blanks and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS_A_SECOND


def peak_rss_mb_of(status: str) -> float:
    """The high-water mark of resident memory from the text of /proc/PID/status."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    # A process that has ended but was not waited for yet has no memory.
    return 0.0


def pss_mb(pid: int) -> float:
    """The process's share of memory now: a page that several have counts for each in part."""
    try:
        return pss_mb_of(Path(f"/proc/{pid}/smaps_rollup").read_text(errors="replace"))
    except OSError:
        return 0.0


def pss_by_part(processes: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """What the processes of each part have of memory now, together."""
    return {part: sum(map(pss_mb, pids)) for part, pids in processes.items()}


def pss_mb_of(smaps_rollup: str) -> float:
    """The proportional set size from the text of /proc/PID/smaps_rollup."""
    for line in smaps_rollup.splitlines():
        if line.startswith("Pss:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def process_tree(pid: int) -> list[int]:
    """A process and all below it."""
    import psutil

    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return [pid]


def server_cpu_seconds(postmaster: int, asker: int) -> float:
    """What a whole Postgres server has used so far, but for the backend ``asker``."""
    # The postmaster waits for its children, so those that ended are in its own count.
    return total(set(process_tree(postmaster)) - {asker}).cpu_seconds


def forget_peak(pid: int) -> None:
    """Let the process's high-water mark begin anew at what it holds now."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def pipeline_processes(driver: int) -> dict[str, list[int]]:
    """The processes of a running pipeline by their part: driver, jvm, workers, capture."""
    import psutil

    parts: dict[str, list[int]] = {"driver": [driver], "jvm": [], "workers": [], "capture": []}
    try:
        children = psutil.Process(driver).children(recursive=True)
    except psutil.NoSuchProcess:
        return parts
    for child in children:
        with suppress(psutil.NoSuchProcess):
            parts[_part(child.cmdline())].append(child.pid)
    return parts


def copy_processes(driver: int, folder: Path) -> dict[str, list[int]]:
    """The same while it copies: what holds snapshots in ``folder`` goes its own way."""
    import psutil

    parts = pipeline_processes(driver)
    parts["holder"] = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if _is_holder(process.info["cmdline"] or [], folder)
    ]
    return parts


def _is_holder(command: list[str], folder: Path) -> bool:
    return _HOLDER in command and any(
        Path(word).is_relative_to(folder) for word in command[command.index(_HOLDER) :]
    )


def _part(command: list[str]) -> str:
    if "penstock" in command and "capture" in command:
        return "capture"
    if command and Path(command[0]).name == "java":
        return "jvm"
    return "workers"


def total(pids: Iterable[int]) -> Usage:
    return sum((usage(pid) for pid in pids), Usage())
