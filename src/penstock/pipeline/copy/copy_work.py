"""What copies work with: where rows come from, where they go, and when it is over."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.errors import PenstockError
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.schema_copy import SchemaCopy
from penstock.source.contract import CopySource
from penstock.transform.transform import Transform


class CopiesStopped(PenstockError):
    """Raised inside a copy that the pipeline's end cuts short; nothing is wrong."""


class CopiesEnd:
    """Told when the pipeline ends; whatever takes long looks here."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def check(self) -> None:
        """Raises CopiesStopped once it is time."""
        if self.told.is_set():
            raise CopiesStopped("the pipeline is stopping")


class Finish(Protocol):
    """What comes after a table's last chunk."""

    def finish(self, tables: Sequence[TableDefinition]) -> None: ...


@dataclass(frozen=True)
class CopyWork:
    """For one copy manager. ``schema`` where the destination takes the source's whole schema;
    ``transform`` where rules change values.
    """

    source: CopySource
    target: CopyTarget
    finish: Finish
    end: CopiesEnd
    schema: SchemaCopy | None = None
    transform: Transform | None = None
