"""What commands print: rich in a terminal, plain lines everywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """Made anew for each use, so that it writes to what stdout and stderr are now."""
    # Rich is loaded by those who use it: most commands print plain lines.
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def show_error(message: str, remedy: str) -> None:
    """An error on stderr: what happened, then what to do."""
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("Error: ", "bold red"), message))
    if remedy:
        out.print(Text.assemble(("What to do: ", "bold"), remedy))


def say(text: str) -> None:
    """One line on stdout, as it is."""
    typer.echo(text)
