"""`penstock tables`: what a pipeline's tables are at, and what a person may want of them."""

from __future__ import annotations

import typer

from penstock.cli.tables.copying import cancel, pause, resume, resync
from penstock.cli.tables.listing import list_tables
from penstock.cli.tables.membership import add, remove
from penstock.cli.tables.states import retry, rollback

tables_app = typer.Typer(
    no_args_is_help=True,
    help="Show the tables of a pipeline; add and remove tables; steer their copies.",
)

# One line a command; the order is that of the help.
tables_app.command("list")(list_tables)
tables_app.command("add")(add)
tables_app.command("remove")(remove)
tables_app.command("resync")(resync)
tables_app.command("pause")(pause)
tables_app.command("resume")(resume)
tables_app.command("cancel")(cancel)
tables_app.command("retry")(retry)
tables_app.command("rollback")(rollback)
