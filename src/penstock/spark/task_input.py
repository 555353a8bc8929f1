"""What the driver's side of the source tells a task. Light: Spark starts a process for each stream
that loads this and little else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.changelog.chain import Pointer
from penstock.failpoints import failpoint
from penstock.model.error_transport import error_to_text
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier

if TYPE_CHECKING:
    from penstock.changelog.changelog import ChangeLog
    from penstock.decode.changes import ChangeSet


@dataclass(frozen=True)
class TaskInput:
    """One task's share of a micro-batch."""

    pointers: tuple[Pointer, ...]
    frontier: Frontier
    buffer_bytes: int

    def to_json(self) -> str:
        return json.dumps(
            {
                "pointers": [asdict(pointer) for pointer in self.pointers],
                "frontier": self.frontier.to_json(),
                "buffer_bytes": self.buffer_bytes,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> TaskInput:
        value = json.loads(text)
        return cls(
            tuple(Pointer(**pointer) for pointer in value["pointers"]),
            Frontier.from_json(value["frontier"]),
            value["buffer_bytes"],
        )

    def changes(self, log: ChangeLog) -> Iterator[ChangeSet]:
        """Read and split the share, about ``buffer_bytes`` at a time."""
        from penstock.changelog.segment_run import read_runs
        from penstock.decode.changes import decode_changes

        for run in read_runs(log, self.pointers, self.buffer_bytes):
            failpoint("task.read")
            yield decode_changes(run.rows, run.tables, run.origins)


@contextmanager
def marked_errors() -> Iterator[None]:
    """Raise a PenstockError in a form that error_from_text finds on the driver."""
    try:
        yield
    except PenstockError as error:
        raise RuntimeError(error_to_text(error)) from error
