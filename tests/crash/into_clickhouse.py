"""A pipeline into `clickhouse` under load, judged row by row by what its views show.

The engine is a real one (chdb), behind our own HTTP façade.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from penstock.destination.clickhouse.destination import ClickHouseDestination
from penstock.destination.clickhouse.options import ClickHouseOptions
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from tests.clickhouse_rows import expect_same_rows
from tests.clickhouse_server import ClickHouseServer
from tests.crash.injured_pipeline import SMALL_SEGMENTS, InjuredPipeline
from tests.crash.into_search import FOLLOWED, KEYLESS
from tests.crash.passed_failpoints import passed_failpoints
from tests.search_proxy import Faults, SearchProxy

STEADY = Faults(requests=0.01, answers=0.01)
"""What goes wrong all the time: requests that are refused, answers that are lost."""


class IntoClickHouse(InjuredPipeline):
    """The pipeline reaches the engine through a proxy; the judge does not."""

    failpoints = passed_failpoints("clickhouse")

    def __init__(
        self,
        server: EmbeddedPostgres,
        clickhouse: ClickHouseServer,
        folder: Path,
        seed: int,
        *,
        timeout: str = "60s",
    ) -> None:
        super().__init__(server, folder, seed)
        self.clickhouse = clickhouse
        self.proxy = SearchProxy(clickhouse.port)
        self.proxy.__enter__()
        self.proxy.set(STEADY, seed)
        # The load writes infinity, which no type of ClickHouse holds.
        options = {"unfit": "null", "timeout": timeout}
        self._destination = ClickHouseDestination(
            ClickHouseOptions.model_validate({"url": clickhouse.url, **options, "timeout": "1s"}),
            self.pipeline.name,
        )
        self.pipeline.configure(
            destination={"type": "clickhouse", "url": self.proxy.url, **options},
            batch={"max_age": "1s"},
            tables={"exclude": [f"public.{table}" for table in KEYLESS]},
            copy=False,
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        self.pipeline.subscribe()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.proxy.__exit__(kind, error, trace)

    def frontier(self) -> Frontier:
        """What the ledger says; nothing while it cannot be asked."""
        try:
            at = self._destination.committed()
        except DestinationError:
            at = None
        return Frontier(0, 0) if at is None else at.frontier

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        return expect_same_rows(self.url, self._destination, FOLLOWED, unfit=True)
