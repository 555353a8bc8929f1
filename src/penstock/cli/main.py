"""The command `penstock`: its commands, and how an error reaches a person."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from penstock.cli import (
    capture,
    check,
    copy,
    demo,
    destroy,
    init,
    pack,
    run,
    serve,
    snapshot,
    status,
    verify,
)
from penstock.cli.dead_letters import dead_letters_app
from penstock.cli.log import log_app
from penstock.cli.logs import FORMAT, LEVEL, LogFormat, LogLevel
from penstock.cli.schema import schema_app
from penstock.cli.tables import tables_app
from penstock.cli.terminal import show_error
from penstock.cli.transform import transform_app
from penstock.cli.webhooks import webhooks_app
from penstock.debug import DEBUG, is_debug
from penstock.model.errors import PenstockError
from penstock.operations.exit_codes import EXIT_FAILED, exit_code_of

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=True,
    # Plain help reads the same in a terminal, a pipe and a log.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# One line a command; the order is that of the help.
app.command("check")(check.check)
app.command("init")(init.init)
app.command("run")(run.run)
app.command("snapshot")(snapshot.snapshot)
app.command("copy")(copy.copy)
app.command("capture")(capture.capture)
app.command("status")(status.status)
app.command("verify")(verify.verify)
app.add_typer(tables_app, name="tables")
app.add_typer(schema_app, name="schema")
app.add_typer(dead_letters_app, name="dead-letters")
app.add_typer(log_app, name="log")
app.add_typer(transform_app, name="transform")
app.add_typer(webhooks_app, name="webhooks")
app.command("serve")(serve.serve)
app.add_typer(serve.tokens_app, name="tokens")
app.command("destroy")(destroy.destroy)
app.command("pack")(pack.pack)
app.command("demo")(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def penstock(
    debug: Annotated[
        bool, typer.Option("--debug", envvar=DEBUG, help="Show tracebacks, and Spark's own errors.")
    ] = False,
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", envvar=FORMAT, help="Lines for people, or JSON objects."),
    ] = LogFormat.text,
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", envvar=LEVEL, help="What is logged: this and what is worse."),
    ] = LogLevel.info,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Follow every change of a Postgres database, and deliver it in commit order.

    A pipeline is described by one YAML file: the source, its tables, the destination.
    docs/pipeline_file.md lists every key.

    \b
    Example:
      export SHOP_URL=postgresql://penstock:secret@db/shop
      penstock check shop.yaml      what the source still lacks
      penstock run shop.yaml        follow the changes until Ctrl-C
      penstock status shop.yaml     how far behind it is
      penstock verify shop.yaml     compare source and destination
      penstock destroy shop.yaml    remove everything again

    Exit codes: 0 fine, 1 failed, 2 the pipeline file or the command line is wrong.
    """
    # In the environment, so that processes which a command starts know it, too.
    if debug:
        os.environ[DEBUG] = "1"
    os.environ[FORMAT] = log_format.value
    os.environ[LEVEL] = log_level.value


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command line and exit. Errors end as a message on stderr, not as a traceback."""
    try:
        app(args=arguments, prog_name="penstock")
    except PenstockError as error:
        if is_debug():
            raise
        show_error(error.message, error.remedy)
        sys.exit(exit_code_of(error))
    except Exception as error:
        if is_debug():
            raise
        show_error(
            f"Unexpected {type(error).__name__}: {_without_frames(error)}",
            "This is a bug in Penstock. `penstock --debug …` shows where; please report it.",
        )
        sys.exit(EXIT_FAILED)
    sys.exit(0)


def _without_frames(error: Exception) -> str:
    """What an error says, without the frames that those of Java and of workers carry in it."""
    try:
        text = str(error)
    except Exception:
        # Spark asks the JVM for it, which may have ended.
        return "(what it says is gone with Spark)"
    return re.split(r"\n(?=\s+at |\s*Traceback |JVM stacktrace)", text, maxsplit=1)[0].strip()


if __name__ == "__main__":
    main()
