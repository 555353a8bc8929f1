from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.meter import Meter
from bench.process_usage import (
    Usage,
    cpu_seconds_of,
    peak_rss_mb_of,
    process_tree,
    pss_mb,
    pss_mb_of,
    usage,
)

pytestmark = pytest.mark.release

TICKS = os.sysconf("SC_CLK_TCK")


def test_cpu_counts_the_process_and_its_waited_for_children() -> None:
    # A program may call itself anything, also what looks like the end of the field.
    stat = f"42 (odd) name) S 1 42 42 0 -1 0 0 0 0 0 {TICKS} {2 * TICKS} {3 * TICKS} {4 * TICKS} 20"
    assert cpu_seconds_of(stat) == 10.0


def test_peak_memory_is_the_high_water_mark() -> None:
    assert peak_rss_mb_of("Name:\tx\nVmPeak:\t9999 kB\nVmHWM:\t  2048 kB\nVmRSS:\t1024 kB\n") == 2.0


def test_a_process_without_memory_has_no_peak() -> None:
    assert peak_rss_mb_of("Name:\tx\nState:\tZ (zombie)\n") == 0.0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_our_own_usage_is_seen() -> None:
    spent = sum(os.times()[:2])
    seen = usage(os.getpid())
    assert seen.cpu_seconds >= spent - 2 / TICKS
    assert seen.peak_rss_mb > 1


def test_a_process_that_is_gone_used_nothing_and_takes_nothing_back() -> None:
    # Process ids end at 2**22.
    assert usage(2**23) == Usage()
    assert Usage(1.5, 20.0).at_least(usage(2**23)) == Usage(1.5, 20.0)


def test_the_share_of_memory_is_the_proportional_set_size() -> None:
    text = "55d0-7ffe ---p 0 00:00 0 [rollup]\nRss:\t 4096 kB\nPss:\t 1024 kB\nPss_Anon: 9 kB\n"
    assert pss_mb_of(text) == 1.0
    assert pss_mb_of("") == 0.0


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")
def test_our_own_share_of_memory_is_seen() -> None:
    assert 1 < pss_mb(os.getpid()) <= usage(os.getpid()).peak_rss_mb
    assert pss_mb(2**23) == 0.0


def test_a_tree_is_the_process_and_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        tree = process_tree(os.getpid())
        child.communicate(b"\n")
    assert tree[0] == os.getpid()
    assert child.pid in tree


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")
def test_memory_of_a_process_that_ended_meanwhile_counts() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        # Python is loaded once it says something; before that the process holds next to nothing.
        child.stdout.readline()
        meter = Meter(lambda: {"child": [child.pid]}, lambda: 0.0, None)
        meter.read()
        child.communicate(b"\n")
    assert meter.read().rss_mb["child"] > 1
