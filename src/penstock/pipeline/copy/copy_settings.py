"""How tables are copied."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CopySettings:
    """``leaves_room``: one task is left to the stream. ``one_snapshot``: all tables are read under
    the same, or begin anew. ``keeps_foreign_rows``: a target with rows that the pipeline did not
    bring is refused. ``worker`` is who claims copies in the store.
    """

    parallelism: int
    leaves_room: bool
    unit_bytes: int
    one_snapshot: bool = False
    keeps_foreign_rows: bool = True
    pause_over_budget: bool = False
    worker: str = field(default_factory=lambda: str(uuid.uuid4()))
