"""One seed of chaos over a pipeline into a DuckLake, whose catalogue is hurt as well."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.catalogue_faults import CATALOGUE_FAULTS
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_ducklake import IntoDucklake
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.tcp_proxy import TcpProxy


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Bring ``count`` faults over a pipeline from the server into a lake. Fails unless every row is
    there in the end as at the source, and no other.
    """
    with (
        EmbeddedPostgres() as catalogue,
        TcpProxy(catalogue.port) as network,
        IntoDucklake(server, catalogue, folder, int(report.seed), network) as injured,
    ):
        run_queue_seed(report, count, injured, {**CATALOGUE_FAULTS, **PROCESS_FAULTS}, say)
