"""A pipeline into `ducklake` under load: two servers, of which one holds the catalogue."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from penstock.destination.ducklake.destination import DucklakeDestination
from penstock.destination.ducklake.lake import Lake
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from tests.crash.catalogue_faults import through
from tests.crash.injured_pipeline import SMALL_SEGMENTS, InjuredPipeline
from tests.crash.passed_failpoints import passed_failpoints
from tests.lake_rows import expect_same_in_ducklake
from tests.tcp_proxy import TcpProxy
from tests.workload_tables import TABLES


class IntoDucklake(InjuredPipeline):
    """Judged row by row, by a DuckDB of its own."""

    failpoints = passed_failpoints("ducklake")

    def __init__(
        self,
        server: EmbeddedPostgres,
        catalogue: EmbeddedPostgres,
        folder: Path,
        seed: int,
        network: TcpProxy | None = None,
    ) -> None:
        super().__init__(server, folder, seed)
        url = catalogue.create_database("lake")
        options = {
            "catalog": url if network is None else through(network, url),
            "data_path": str(self.pipeline.folder / "data"),
            "maintenance": {"every": "5s"},
        }
        self.catalogue = catalogue
        if network is not None:
            self.catalogue_network = network
        self.lake = Lake(DucklakeOptions.model_validate(options))
        self._destination = DucklakeDestination(
            DucklakeOptions.model_validate(options), self.pipeline.name
        )
        self.pipeline.configure(
            destination={"type": "ducklake", **options}, batch={"max_age": "1s"}, **SMALL_SEGMENTS
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
            self.lake.close()
            self._destination.close()

    def frontier(self) -> Frontier:
        """What the destination says; nothing while it cannot be asked."""
        try:
            at = self._destination.committed()
        except DestinationError:
            at = None
        return Frontier(0, 0) if at is None else at.frontier

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        return sum(expect_same_in_ducklake(self.url, self.lake, table) for table in TABLES)
