"""A pipeline into `redshift` under load, with a stand-in for Redshift and a stage in SeaweedFS."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from penstock.destination.redshift.destination import RedshiftDestination
from penstock.destination.redshift.options import RedshiftOptions
from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.injured_pipeline import SMALL_SEGMENTS
from tests.crash.into_lake import IntoLake
from tests.crash.passed_failpoints import passed_failpoints
from tests.objects_server import ObjectServer
from tests.redshift_stand_in import ROLE, RedshiftStandIn
from tests.warehouse_rows import expect_same_in_stand_in
from tests.workload_tables import TABLES


class IntoRedshiftStandIn(IntoLake):
    """Judged row by row, from the stand-in's own database. ``warehouse`` is the server of that."""

    failpoints = passed_failpoints("redshift")

    def __init__(
        self,
        server: EmbeddedPostgres,
        warehouse: EmbeddedPostgres,
        objects: ObjectServer,
        folder: Path,
        seed: int,
    ) -> None:
        super().__init__(server, folder, seed)
        self.warehouse = warehouse
        self._rows = warehouse.create_database("warehouse")
        self.stand_in = RedshiftStandIn(self._rows, objects.direct_options)
        options = {
            "url": self.stand_in.url,
            "stage": objects.place(),
            "stage_options": objects.direct_options,
            "iam_role": ROLE,
        }
        self._destination = RedshiftDestination(
            RedshiftOptions.model_validate(options), self.pipeline.name
        )
        self.pipeline.configure(
            destination={"type": "redshift", **options}, batch={"max_age": "1s"}, **SMALL_SEGMENTS
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
            self._destination.close()
            self.stand_in.close()

    def check_tables(self) -> int:
        assert not self.stand_in.denied
        return sum(expect_same_in_stand_in(self.url, self._rows, table) for table in TABLES)
