"""A pipeline into a search server under load, judged document by document."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from penstock.destination.registry import make_destination
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.passed_failpoints import passed_failpoints
from tests.search_documents import expect_same_rows
from tests.search_proxy import Faults, SearchProxy
from tests.search_server import SearchServer
from tests.workload import Workload
from tests.workload_tables import TABLES

KEYLESS = ("journal",)
"""Rows that nothing tells apart are changed: such a table is refused."""

FOLLOWED = tuple(table for table in TABLES if table not in KEYLESS)
STEADY = Faults(documents=0.05, requests=0.01, answers=0.01)
"""What goes wrong all the time."""

_PAUSE_SECONDS = 0.3


class IntoSearch(InjuredPipeline):
    """The pipeline reaches the server through a proxy; the judge does not."""

    failpoints = passed_failpoints("search")

    def __init__(
        self,
        server: EmbeddedPostgres,
        search: SearchServer,
        folder: Path,
        seed: int,
        *,
        timeout: str = "60s",
    ) -> None:
        super().__init__(server, folder, seed)
        self.load = Workload(self.url, seed, pause=_PAUSE_SECONDS)
        self.search = search
        self.proxy = SearchProxy(search.port)
        self.proxy.__enter__()
        self.proxy.set(STEADY, seed)
        self.pipeline.configure(
            destination={
                "type": "search",
                "url": self.proxy.url,
                "replicas": 0,
                "timeout": timeout,
                "bulk_size": "64 KiB",
            },
            batch=SHORT_BATCHES,
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
        config = self.pipeline.config
        options = {**config.destination_options, "url": self.search.url}
        destination = make_destination("search", options, config.name)
        try:
            committed = destination.committed()
            return committed.frontier if committed else Frontier(0, 0)
        except DestinationError:
            return Frontier(0, 0)
        finally:
            destination.close()

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        config = self.pipeline.config
        options = make_destination(
            "search", {**config.destination_options, "url": self.search.url}, config.name
        ).options
        return expect_same_rows(self.url, options, config.name, FOLLOWED)
