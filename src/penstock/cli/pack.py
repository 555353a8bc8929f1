"""`penstock pack`: what executors need to run tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.terminal import say
from penstock.model.quantity_text import bytes_text


def pack(
    output: Annotated[Path, typer.Option("--output", "-o", help="The archive to write.")] = Path(
        "penstock_env.tar.gz"
    ),
) -> None:
    """Put Penstock and all that it needs into an archive for the executors of a Spark cluster.

    Name it in the pipeline file as spark.environment. It holds the packages of this environment,
    those with destinations of your own included, but no Python: executors need the interpreter at
    the same place as here (docs/clusters.md).

    \b
    Example:
      penstock pack
      penstock pack --output /shared/penstock_env.tar.gz
    """
    from penstock.spark import environment

    count = environment.pack(output)
    say(f"Wrote {output}: {count} packages, {bytes_text(output.stat().st_size)}.")
