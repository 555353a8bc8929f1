"""What pipelines into lakes share whose tables are committed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.destination.contract import Destination
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from tests.crash.injured_pipeline import InjuredPipeline

# Many small chunks, of which several are under way: they come again in another order.
_COPY: dict[str, Any] = {"chunk_bytes": "256KiB", "parallelism": 3}


def copy_of(tables: Sequence[str]) -> dict[str, Any]:
    """Parts of the pipeline file that copy these tables and no others, if there are any."""
    if not tables:
        return {}
    return {"include": tuple(f"public.{table}" for table in tables), "copy": _COPY}


class IntoLake(InjuredPipeline):
    """Tables are committed one by one: a driver may die between any two of them."""

    _destination: Destination

    def frontier(self) -> Frontier:
        """What the control table says; nothing while it is being written."""
        try:
            at = self._destination.committed()
        except DestinationError:
            at = None
        return Frontier(0, 0) if at is None else at.low

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        return self.check_tables()

    def check_tables(self) -> int:
        """Fail unless every table holds the source's rows; how many there are."""
        raise NotImplementedError
