"""The argument that every command on a pipeline takes, and what it stands for.

Modules of commands import little: `penstock --help` loads them all. What a command needs beyond
the command line it imports when it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.config import PipelineConfig

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline file (docs/pipeline_file.md).")
]

OneDestination = Annotated[
    str | None,
    typer.Option(
        "--only",
        "--destination",
        metavar="NAME",
        help="Of several destinations in the file, this one.",
    ),
]


def load_pipeline(file: Path, only: str | None = None) -> PipelineConfig:
    """The pipeline file, read and checked, for one destination. Raises ConfigError with all that is
    wrong with it, or where it has several and nobody says which.
    """
    from penstock.config import load_pipeline

    return load_pipeline(file, only=only)


def load_deliveries(file: Path) -> tuple[PipelineConfig, ...]:
    """The same for each of its destinations."""
    from penstock.config import load_deliveries

    return load_deliveries(file)


def chosen_deliveries(file: Path, only: str | None) -> tuple[PipelineConfig, ...]:
    """The destination that is asked for, else all of them."""
    return load_deliveries(file) if only is None else (load_pipeline(file, only),)
