"""`penstock demo`: see the whole thing work on databases of its own."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from penstock.cli.run import StopOnSignal
from penstock.cli.serve import require_packages
from penstock.cli.terminal import say, show_error

_SHOW_CURSOR = b"\x1b[?25h"


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=1, max=3600, help="How long the load runs: 30, with --page 600."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep pipeline file, change log and report.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Show it on a web page as well (docs/serve.md).")
    ] = False,
) -> None:
    """Replicate one embedded Postgres into another under load, and check every row at the end.

    Starts a shop database and an empty one, keeps the shop busy with inserts, updates, deletes,
    changed keys, swapped unique values and TRUNCATE, and replicates it through local Spark. All the
    time a reader of the destination checks that it never shows half a transaction. At the end
    `penstock verify` compares both databases, while the pipeline runs. Needs no database and no
    set-up; what it started is gone afterwards, on Ctrl-C too.

    Exits with 0 only when every table is equal and the reader never saw half a transaction.

    \b
    Example:
      penstock demo
      penstock demo --seconds 5 --keep
      penstock demo --page
    """
    from rich.console import Console

    from penstock.demo.demonstration import Interrupted, run_demo
    from penstock.demo.view import INVARIANT, make_view

    if page:
        require_packages(page=True)
    seconds = seconds or (600.0 if page else 30.0)
    stopping = _StopDemo()
    stopping.install()
    view = make_view(Console(highlight=False))
    try:
        verdict = run_demo(seconds, keep=keep, stopping=stopping, view=view, page=page)
    except Interrupted:
        say("Stopped before the end: no verdict. Everything that was started is gone.")
        raise typer.Exit(128 + stopping.number) from None
    say("penstock verify:")
    for line in verdict.report:
        say(f"  {line}")
    invariant = verdict.invariant
    say(f"{INVARIANT}: {invariant}")
    if verdict.equal and invariant.held:
        return
    failures = [] if verdict.equal else ["The destination differs from the source (see above)."]
    if invariant.broken:
        failures += ["The destination showed half a transaction:", *invariant.broken]
    elif not invariant.held:
        failures.append("Nobody ever looked whether the destination shows half a transaction.")
    show_error(
        "\n".join(failures),
        "This is a bug in Penstock. Please report it with the lines above; --keep keeps the change "
        "log of the next run.",
    )
    raise typer.Exit(1)


class _StopDemo(StopOnSignal):
    """Remembers which signal came, for the exit code; the second one leaves the terminal usable."""

    number = 0

    def _on_signal(self, number: int, frame: object) -> None:
        if self.number and sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        self.number = number
        super()._on_signal(number, frame)
