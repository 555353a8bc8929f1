"""What copies make the source, or the change log, keep."""

from __future__ import annotations

import time

from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.model.errors import SourceUnavailable
from penstock.model.quantity_text import bytes_text
from penstock.source.postgres.connect import connect
from penstock.source.postgres.source_status import read_source_status

_LOOK_SECONDS = 5.0


class HeldWal:
    """Compares it with a budget now and then."""

    def __init__(self, config: PipelineConfig, budget: int | None) -> None:
        self._config = config
        self._budget = budget
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
        if self._config.change_log.confirm == "log":
            sizes = ChangeLog(self._config.change_log.path).list().sizes
            return sum(sizes.values()), "the change log"
        try:
            with connect(self._config.source.url, application_name="penstock budget") as conn:
                status = read_source_status(conn, self._config.name)
        except SourceUnavailable:
            return None, ""
        return status.retained_bytes, "the WAL that the source keeps for the slot"
