"""`penstock transform`: rules for values, checked, tried and proposed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.cli.terminal import cell, console, say
from penstock.model.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.model.table_rows import TableRows
    from penstock.transform.transform import Transform

transform_app = typer.Typer(
    no_args_is_help=True, help="Check, try and propose the rules of transform."
)

_WIDTH = 40


@transform_app.command("check")
def check(file: PipelineFile, only: OneDestination = None) -> None:
    """Check every rule against the source's tables: types, lengths, keys, unique indexes, what
    refers to what.

    Changes nothing, and reads no row. `penstock check` and every start do the same. Exits with 1
    when anything failed; warnings do not count.

    \b
    Example:
      penstock transform check shop.yaml
    """
    from penstock.operations.transform_rules import checked_rules

    findings = checked_rules(load_pipeline(file, only))
    for found in findings:
        say(f"{found.status:<8} {found.where}: {found.text}")
        if found.remedy:
            say(f"         what to do: {found.remedy}")
    if any(found.status == "failed" for found in findings):
        raise typer.Exit(1)


@transform_app.command("preview")
def preview(
    file: PipelineFile,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows of each table.")] = 5,
    table: Annotated[
        str | None, typer.Option("--table", "-t", help="One table alone, as schema.table.")
    ] = None,
    only: OneDestination = None,
) -> None:
    """Show some rows before and after the rules, in this terminal and nowhere else.

    It reads the source with the pipeline's role, and shows values as they are: mind who looks on.

    \b
    Example:
      penstock transform preview shop.yaml
      penstock transform preview shop.yaml --table public.users --rows 20
    """
    from penstock.source.postgres.preflight.rule_checks import followed_tables
    from penstock.source.postgres.rule_samples import sampled_rows
    from penstock.source.registry import expect_postgres

    config = load_pipeline(file, only)
    expect_postgres(config, "transform preview")
    transform = _required(config)
    tables = [
        found
        for found in followed_tables(config)
        if transform.covered(found) and table in (None, found.qualified_name, found.name)
    ]
    if not tables:
        raise ConfigError(
            "No rule changes a value of any table"
            + ("." if table is None else f" called {table}."),
            remedy="`penstock transform check FILE` lists the tables that rules match.",
        )
    for found in sampled_rows(config, tables, rows):
        _show(found, transform)


def _show(rows: TableRows, transform: Transform) -> None:
    changed = {bound.column for bound in transform.plan(rows.table)}
    after = transform.apply_rows(rows)
    names = [column.name for column in rows.table.columns]
    say(f"{rows.table.qualified_name} ({len(rows)} rows)")
    if not console().is_terminal:
        for row in range(len(rows)):
            for place, name in enumerate(names):
                if name in changed:
                    before, made = (side.columns[place][row].as_py() for side in (rows, after))
                    say(f"  {row + 1:>3} {name}: {_short(before)} → {_short(made)}")
        return
    from rich.table import Table

    shown = Table()
    for name in names:
        shown.add_column(cell(name), style="" if name in changed else "dim")
    for row in range(len(rows)):
        cells = []
        for place, name in enumerate(names):
            before, made = (side.columns[place][row].as_py() for side in (rows, after))
            both = cell(_short(before))
            if name in changed:
                both.append(cell(f"\n{_short(made)}", "green"))
            cells.append(both)
        shown.add_row(*cells)
    console().print(shown)


def _short(value: str | None) -> str:
    if value is None:
        return "NULL"
    return value if len(value) <= _WIDTH else f"{value[: _WIDTH - 1]}…"


@transform_app.command("suggest")
def suggest(
    file: PipelineFile,
    samples: Annotated[
        int, typer.Option("--samples", min=0, help="Rows of each table to look at; none: 0.")
    ] = 100,
    only: OneDestination = None,
) -> None:
    """Propose rules from names, types, samples, security labels and comments of columns.

    Prints the part transform for the pipeline file, with the reason behind each rule. Nothing is
    applied, and no value is shown.

    \b
    Example:
      penstock transform suggest shop.yaml > rules.yaml
    """
    import yaml

    from penstock.operations.named_tables import quoted
    from penstock.source.postgres.preflight.rule_checks import followed_tables
    from penstock.source.postgres.rule_samples import column_hints
    from penstock.source.registry import expect_postgres
    from penstock.transform.suggestions import suggest as proposed

    config = load_pipeline(file, only)
    expect_postgres(config, "transform suggest")
    tables = followed_tables(config)
    hints = column_hints(config, tables, samples)
    say("transform:")
    say("  key: ${PENSTOCK_TRANSFORM_KEY}  # openssl rand -base64 32")
    say("  mode: strict")
    say("  rules:")
    for table in tables:
        found = proposed(table, hints[table.oid])
        say(f"    - table: {_yaml(yaml, quoted(table.schema, table.name))}")
        say("      columns:" if found else "      columns: {}")
        for name, made in found.items():
            say(f"        {_yaml(yaml, name)}: {_yaml(yaml, made.rule)}  # {made.why}")
        rest = [c.name for c in table.columns if c.is_delivered and c.name not in found]
        say(f"      keep: {_yaml(yaml, rest)}")


def _yaml(yaml: Any, value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("...").strip()


@transform_app.command("accept")
def accept(file: PipelineFile, only: OneDestination = None) -> None:
    """Take the rules and the key of now for those that rows were delivered under.

    Where rows are not copied, a pipeline refuses to start with other rules than before: the
    destination would hold values of both. This says that it may. What was delivered stays.

    \b
    Example:
      penstock transform accept shop.yaml
    """
    from penstock.operations.transform_rules import accepted_rules

    names = accepted_rules(load_pipeline(file, only))
    say(f"accepted for {', '.join(names)}" if names else "nothing to accept: rules are the same")


@transform_app.command("reveal")
def reveal(
    file: PipelineFile,
    domain: Annotated[str, typer.Option("--domain", help="The domain of the rule.")] = "",
    only: OneDestination = None,
) -> None:
    """Decrypt what the transformer encrypt made: one value a line on standard input.

    \b
    Example:
      echo "$VALUE" | penstock transform reveal shop.yaml --domain patients
    """
    from penstock.transform.transformers.column_facts import text_facts
    from penstock.transform.transformers.contract import NoOptions, ValueRefusedError
    from penstock.transform.transformers.keys import Keys, master_key
    from penstock.transform.transformers.pseudonyms import Encrypt

    config = load_pipeline(file, only)
    key = None if config.transform is None else config.transform.key
    master = master_key(None if key is None else key.get_secret_value())
    cipher = Encrypt(NoOptions(), Keys(master, domain), text_facts("value"))
    for number, line in enumerate(sys.stdin, start=1):
        try:
            say(cipher.reveal(line.strip()))
        except ValueRefusedError as error:
            raise ConfigError(
                f"Line {number} is {error.why}.",
                remedy="Check key and --domain: they are those of the rule that made it.",
            ) from None


def _required(config: PipelineConfig) -> Transform:
    from penstock.operations.transform_rules import required_transform

    return required_transform(config)
