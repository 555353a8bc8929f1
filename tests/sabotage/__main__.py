"""`make sabotage`: breaks every guarantee on a copy of the source; a test has to notice each.

``ONLY`` names some of the breaks, with commas between.
"""

from __future__ import annotations

import os
import sys
import time

from tests.sabotage.a_break import Break
from tests.sabotage.breaks import BREAKS
from tests.sabotage.judgement import Verdict, judge, judge_unbroken


def main() -> int:
    breaks = _chosen(os.environ.get("ONLY", ""))
    width = max(len(each.name) for each in breaks)
    began = time.monotonic()
    unbroken = judge_unbroken(breaks)
    _show(f"{'(nothing broken)':{width}}", unbroken, began)
    if not unbroken.noticed:
        return 1
    noticed = 0
    for number, each in enumerate(breaks, start=1):
        began = time.monotonic()
        found = judge(each)
        noticed += found.noticed
        _show(f"{number:2}/{len(breaks)} {each.name:{width}}", found, began)
        if not found.noticed:
            print(f"    {each.guarantee}: {each.without}", flush=True)
    print(f"{noticed} of {len(breaks)} noticed")
    return 0 if noticed == len(breaks) else 1


def _chosen(only: str) -> list[Break]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {each.name: each for each in BREAKS}
    if unknown := [name for name in names if name not in known]:
        sys.exit(
            f"ONLY={only}: no break is called {', '.join(unknown)}; there are:\n"
            + "\n".join(f"  {name}" for name in known)
        )
    return [known[name] for name in names] or list(BREAKS)


def _show(what: str, found: Verdict, began: float) -> None:
    print(f"{what}  {time.monotonic() - began:5.1f} s  {found.text}", flush=True)
    if found.details:
        print("    " + found.details.replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
