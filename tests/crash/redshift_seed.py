"""One seed of chaos over a pipeline into a stand-in for Redshift, which crashes as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_redshift import IntoRedshiftStandIn
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.objects_server import ObjectServer

CONFLICT = "1023 DETAIL: Serializable isolation violation on table"


def _crash_warehouse(injured: IntoRedshiftStandIn, _amount: float) -> str:
    injured.warehouse.kill()
    injured.warehouse.start()
    return ""


def _refuse_an_order(injured: IntoRedshiftStandIn, _amount: float) -> str:
    injured.stand_in.faults.append(("^DELETE|^COPY", CONFLICT))
    return ""


def _fail_a_commit(injured: IntoRedshiftStandIn, _amount: float) -> str:
    injured.stand_in.faults.append(("^COMMIT", CONFLICT))
    return ""


def _lose_an_answer(injured: IntoRedshiftStandIn, _amount: float) -> str:
    injured.stand_in.unanswered.append("^COMMIT")
    return ""


FAULTS: dict[str, Callable[[IntoRedshiftStandIn, float], str]] = {
    "warehouse crashed": _crash_warehouse,
    "transactions that have no order": _refuse_an_order,
    "commit refused": _fail_a_commit,
    "answer to a commit lost": _lose_an_answer,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Bring ``count`` faults over a pipeline from the server into the stand-in. Fails unless every
    row is there in the end as at the source, and no other.
    """
    with (
        ObjectServer() as objects,
        EmbeddedPostgres() as warehouse,
        IntoRedshiftStandIn(server, warehouse, objects, folder, int(report.seed)) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)
