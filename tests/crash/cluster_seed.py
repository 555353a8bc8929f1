"""One seed of chaos on a Spark cluster whose workers share nothing with the driver but the network
and the object store with the change log: master, workers, executors and driver die.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.spark.environment import pack
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.fault_schedule import plan_faults
from tests.crash.objects_seed import FAULTS as OF_OBJECTS
from tests.crash.objects_seed import IntoObjects, bring_all
from tests.crash.process_faults import stale_driver
from tests.objects_server import ObjectServer
from tests.spark_cluster import SparkCluster

_LONGEST_SECONDS = 6.0
# Whatever takes longer than another task is begun a second time, on another executor.
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "0ms",
}


class IntoCluster(IntoObjects):
    """The same, with tasks on the cluster's executors. Nothing here deletes the log: in every other
    seed it alone is what the slot was confirmed for. In the others tasks are begun twice.
    """

    def __init__(
        self,
        servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
        objects: ObjectServer,
        cluster: SparkCluster,
        folder: Path,
        seed: int,
    ) -> None:
        super().__init__(*servers, objects, folder, seed)
        self.cluster = cluster
        archive = folder / "penstock_env.tar.gz"
        pack(archive)
        content = yaml.safe_load(self.pipeline.file.read_text())
        content["spark"] = cluster.settings(archive)
        # One that is frozen does not take what was started for the next.
        content["spark"]["conf"]["spark.cores.max"] = "2"
        if seed % 2:
            content["change_log"]["confirm"] = "log"
        else:
            content["spark"]["conf"] |= _SPECULATION
        self.pipeline.file.write_text(yaml.safe_dump(content))


def _kill_master(injured: IntoCluster, amount: float) -> str:
    """Executors go on without it; it has to know them when it is back."""
    injured.cluster.kill_master()
    seconds = amount * _LONGEST_SECONDS
    time.sleep(seconds)
    injured.cluster.start_master()
    return f"away for {seconds:.1f} s"


def _lose_worker(injured: IntoCluster, _amount: float) -> str:
    injured.cluster.lose_worker()
    return ""


def _kill_executor(injured: IntoCluster, _amount: float) -> str:
    return _killed(injured.cluster.live_executors()[:1])


def _kill_executors(injured: IntoCluster, _amount: float) -> str:
    return _killed(injured.cluster.live_executors())


def _killed(executors: list[psutil.Process]) -> str:
    for executor in executors:
        with suppress(psutil.NoSuchProcess):
            executor.kill()
    return f"{len(executors)} executors"


def _stale_driver(injured: IntoCluster, amount: float) -> str:
    """To Spark it is alive, and keeps its executors: the new one gets a machine of its own."""
    injured.cluster.start_worker()
    return stale_driver(injured, amount)


FAULTS: dict[str, Callable[[IntoCluster, float], str]] = {
    "stale driver": _stale_driver,
    "master killed": _kill_master,
    "machine lost": _lose_worker,
    "executor killed": _kill_executor,
    "all executors killed": _kill_executors,
    "another machine lost": _lose_worker,
    **{
        name: OF_OBJECTS[name]
        for name in (
            *("driver killed", "capture killed", "second capture"),
            *("store killed", "store refuses", "store loses answers", "late write"),
        )
    },
}


def run_cluster_seed(
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say = print,
) -> None:
    """Bring ``count`` faults over a pipeline on the cluster.

    Fails unless it gets up after each, nobody sees half a transaction, and both databases hold the
    same rows in the end.
    """
    with (
        ObjectServer() as objects,
        SparkCluster(folder) as cluster,
        IntoCluster(servers, objects, cluster, folder, int(report.seed)) as injured,
    ):
        try:
            plan = plan_faults(int(report.seed), count, FAULTS)
            bring_all(report, injured, plan, FAULTS, say)
        except BaseException as error:
            error.add_note(cluster.said())
            raise
