"""`penstock dead-letters`: rows that the destination refused."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.cli.terminal import say

dead_letters_app = typer.Typer(
    no_args_is_help=True, help="Show, bring again and discard rows that the destination refused."
)

Letter = Annotated[
    int, typer.Argument(metavar="ID", min=1, help="As `dead-letters list` shows it.")
]


Letters = Annotated[
    list[int], typer.Argument(metavar="ID...", min=1, help="As `dead-letters list` shows them.")
]


@dead_letters_app.command("list")
def list_command(
    file: PipelineFile,
    table: Annotated[
        str | None, typer.Option("--table", help="Of this source table alone, as it is listed.")
    ] = None,
    after: Annotated[int, typer.Option("--after", min=0, help="With an id above this one.")] = 0,
    most: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array, for other programs.")
    ] = False,
    only: OneDestination = None,
) -> None:
    """List refused rows: which table, where in the stream, and why.

    Only the destination postgres with `dead_letter: true` keeps any. To bring such a row again,
    mend the cause and run `penstock dead-letters retry`: that copies it as it is now.

    \b
    Example:
      penstock dead-letters list shop.yaml
      penstock dead-letters list shop.yaml --table public.orders
    """
    from penstock.operations.dead_letters import list_letters

    letters = list_letters(load_pipeline(file, only), table=table, after=after, most=most)
    if as_json:
        say(json.dumps([letter.to_json() for letter in letters], indent=2))
        return
    for letter in letters:
        say(f"{letter.id}  {letter.table}  {letter.op} at {letter.commit_lsn}: {letter.cause}")
    if not letters:
        say("There are none.")


@dead_letters_app.command("show")
def show(file: PipelineFile, letter: Letter, only: OneDestination = None) -> None:
    """Show one refused row with its values, as JSON.

    \b
    Example:
      penstock dead-letters show shop.yaml 17
    """
    from penstock.operations.dead_letters import get_letter

    say(json.dumps(get_letter(load_pipeline(file, only), letter).to_json(), indent=2))


@dead_letters_app.command("retry")
def retry(file: PipelineFile, letters: Letters, only: OneDestination = None) -> None:
    """Bring refused rows again, as they are now: mend the cause first.

    Their tables are copied anew, and the letters go; a row that is refused again is a new letter.

    \b
    Example:
      penstock dead-letters retry shop.yaml 17 18
    """
    from penstock.operations.dead_letters import retry_letters

    done = retry_letters(load_pipeline(file, only), file, letters)
    for table in done.tables:
        say(f"{table.table}: {table.text}")
    say(done.note)


@dead_letters_app.command("discard")
def discard(file: PipelineFile, letters: Letters, only: OneDestination = None) -> None:
    """Remove refused rows for good. Ids that are not there (any more) are left out.

    \b
    Example:
      penstock dead-letters discard shop.yaml 17 18
    """
    from penstock.operations.dead_letters import discard_letters

    gone = discard_letters(load_pipeline(file, only), letters)
    say(f"Discarded {len(gone)} of {len(set(letters))}.")
