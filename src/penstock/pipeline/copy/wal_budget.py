"""What copies make the source, or the change log, keep."""

from __future__ import annotations

import time

from penstock.model.quantity_text import bytes_text
from penstock.pipeline.run.context import RunContext
from penstock.source.contract import CopySource

_LOOK_SECONDS = 5.0


class WalBudget:
    """Compares it with source.copy.max_wal now and then."""

    def __init__(self, context: RunContext, source: CopySource) -> None:
        copy = context.config.source.copy_rows
        self._budget = None if copy is None else copy.max_wal
        self._in_log = context.config.change_log.confirm == "log"
        self._log = context.log
        self._source = source
        self._next_look = 0.0

    def over_budget(self) -> str | None:
        """What is wrong, for a person; None while all is well, or where there is no limit."""
        if self._budget is None or time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + _LOOK_SECONDS
        kept, what = self._kept()
        if kept is None or kept <= self._budget:
            return None
        return (
            f"while tables are copied {what} has grown to {bytes_text(kept)}, more than "
            f"source.copy.max_wal ({bytes_text(self._budget)}) allows"
        )

    def _kept(self) -> tuple[int | None, str]:
        if self._in_log:
            return sum(self._log.list().sizes.values()), "the change log"
        return self._source.retained_bytes(), "the WAL that the source keeps for the slot"
