"""What commands print: rich in a terminal, plain lines everywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.model.shown_text import shown_lines, shown_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def console(*, stderr: bool = False) -> Console:
    """Made anew for each use, so that it writes to what stdout and stderr are now."""
    # Rich is loaded by those who use it: most commands print plain lines.
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def cell(text: str, style: str = "") -> Text:
    """A text for rich as it is: names in brackets are no markup."""
    from rich.text import Text

    return Text(shown_text(text), style=style)


def show_error(message: str, remedy: str) -> None:
    """An error on stderr: what happened, then what to do."""
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("Error: ", "bold red"), shown_lines(message)))
    if remedy:
        out.print(Text.assemble(("What to do: ", "bold"), shown_lines(remedy)))


def say(text: str) -> None:
    """Lines on stdout."""
    typer.echo(shown_text(text))
