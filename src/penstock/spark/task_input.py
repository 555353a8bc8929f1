"""What the driver tells a task of a batch, and how a task tells the driver of an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.changelog.chain import Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment_run import read_runs
from penstock.decode.changes import ChangeSet, decode_changes
from penstock.failpoints import failpoint
from penstock.model.error_transport import error_to_text
from penstock.model.errors import PenstockError


@dataclass(frozen=True)
class TaskInput:
    """One task's share of a batch."""

    pointers: tuple[Pointer, ...]
    buffer_bytes: int
    most_changes: int | None = None

    def changes(self, log: ChangeLog) -> Iterator[ChangeSet]:
        """Read about ``buffer_bytes`` at a time, and split them, ``most_changes`` at a time."""
        for run in read_runs(log, self.pointers, self.buffer_bytes):
            failpoint("task.read")
            step = self.most_changes or run.rows.num_rows
            for first in range(0, run.rows.num_rows, step):
                yield decode_changes(run.rows.slice(first, step), run.tables, run.origins)


@contextmanager
def marked_errors() -> Iterator[None]:
    """Raise a PenstockError in a form that error_from_text finds on the driver: typed exceptions
    do not cross from a worker to it; their text does.
    """
    try:
        yield
    except PenstockError as error:
        raise RuntimeError(error_to_text(error)) from error
