"""The argument that every command on a pipeline takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline file (docs/pipeline_file.md).")
]
