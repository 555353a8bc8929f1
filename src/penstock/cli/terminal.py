"""What commands print: rich in a terminal, plain lines everywhere else."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.text import Text


def console(*, stderr: bool = False) -> Console:
    """Made anew for each use, so that it writes to what stdout and stderr are now."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def show_error(message: str, remedy: str) -> None:
    """An error on stderr: what happened, then what to do."""
    out = console(stderr=True)
    out.print(Text.assemble(("Error: ", "bold red"), message))
    if remedy:
        out.print(Text.assemble(("What to do: ", "bold"), remedy))


def say(text: str) -> None:
    """One line on stdout, as it is."""
    typer.echo(text)
