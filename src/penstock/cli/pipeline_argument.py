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


def load_pipeline(file: Path) -> PipelineConfig:
    """The pipeline file, read and checked. Raises ConfigError with all that is wrong with it."""
    from penstock.config import load_pipeline

    return load_pipeline(file)
