"""`make sabotage`: breaks every guarantee on a copy of the source; a test has to notice each.

``ONLY`` names some of the breaks, with commas between; ``JOBS`` says how many are tried at a time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.sabotage.a_break import Break
from tests.sabotage.breaks import BREAKS
from tests.sabotage.judgement import Verdict, judge, judge_unbroken


def main() -> int:
    breaks = _chosen(os.environ.get("ONLY", ""))
    width = max(len(each.name) for each in breaks)
    unbroken, seconds = _timed(lambda: judge_unbroken(breaks))
    _show(f"      {'(nothing broken)':{width}}", unbroken, seconds)
    if not unbroken.noticed:
        return 1
    noticed = 0
    judged = _judged(breaks, int(os.environ.get("JOBS") or 2))
    for number, (each, (found, seconds)) in enumerate(zip(breaks, judged, strict=True), start=1):
        noticed += found.noticed
        _show(f"{number:2}/{len(breaks)} {each.name:{width}}", found, seconds)
        if not found.noticed:
            print(f"    {each.guarantee}: {each.without}", flush=True)
    print(f"{noticed} of {len(breaks)} noticed")
    return 0 if noticed == len(breaks) else 1


def _chosen(only: str) -> list[Break]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {each.name: each for each in BREAKS}
    if unknown := [name for name in names if name not in known]:
        listed = "\n".join(f"  {name}" for name in known)
        sys.exit(f"ONLY={only}: no break is called {', '.join(unknown)}; there are:\n{listed}")
    return [known[name] for name in names] or list(BREAKS)


def _judged(breaks: Sequence[Break], jobs: int) -> Iterator[tuple[Verdict, float]]:
    """In their order, whichever is ready first."""
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(lambda each: _timed(lambda: judge(each)), breaks)
    finally:
        # After Ctrl-C those that are under way come to their end, and no other begins.
        pool.shutdown(cancel_futures=True)


def _timed(act: Callable[[], Verdict]) -> tuple[Verdict, float]:
    began = time.monotonic()
    return act(), time.monotonic() - began


def _show(what: str, found: Verdict, seconds: float) -> None:
    print(f"{what}  {seconds:5.1f} s  {found.text}", flush=True)
    if found.details:
        print("    " + found.details.replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
