"""`penstock demo`: see the whole thing work on a source of its own."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.run import StopOnSignal
from penstock.cli.terminal import say, show_error

_SHOW_CURSOR = b"\x1b[?25h"


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=3600, help="How long the load runs.")
    ] = 30,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep pipeline file, change log and delivered files.")
    ] = False,
) -> None:
    """Run a pipeline on an embedded Postgres under load, and check every row at the end.

    Starts a shop database, keeps it busy with inserts, updates, deletes and TRUNCATE, and delivers
    its changes through local Spark into files. Then it folds the files to final rows and compares
    them with the source, value by value. Needs no database and no set-up; what it started is gone
    afterwards, on Ctrl-C too.

    Exits with 0 only when every table is equal.

    \b
    Example:
      penstock demo
      penstock demo --seconds 5 --keep
    """
    from penstock.demo.run import Interrupted, run_demo
    from penstock.demo.view import make_view

    stopping = _StopDemo()
    stopping.install()
    view = make_view(Console(highlight=False))
    try:
        verdicts = run_demo(seconds, keep=keep, stopping=stopping, view=view)
    except Interrupted:
        say("Stopped before the comparison: no verdict. Everything that was started is gone.")
        raise typer.Exit(128 + stopping.number) from None
    for verdict in verdicts:
        result = f"equal, {verdict.rows:,} rows" if verdict.equal else "DIFFERENT"
        say(f"  {verdict.table:<12} {result}")
    different = [verdict for verdict in verdicts if not verdict.equal]
    if different:
        show_error(
            f"The files differ from the source in {', '.join(v.table for v in different)}.\n"
            + "\n".join(f"  {line}" for v in different for line in v.differences),
            "This is a bug in Penstock. Please report it with the lines above; --keep keeps the "
            "files of the next run.",
        )
        raise typer.Exit(1)
    rows = sum(verdict.rows for verdict in verdicts)
    say(f"Equal: all {rows:,} rows of {len(verdicts)} tables, value by value.")


class _StopDemo(StopOnSignal):
    """Remembers which signal came, for the exit code; the second one leaves the terminal usable."""

    number = 0

    def _on_signal(self, number: int, frame: object) -> None:
        if self.number and sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        self.number = number
        super()._on_signal(number, frame)
