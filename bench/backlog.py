"""w1, w2 and w4: how fast each system takes the same backlog from the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bench.follower import Follower, NativeSubscription, PipelineFollower
from bench.meter import Meter
from bench.object_logs import change_log_of
from bench.places import Places
from bench.rabbit import BARE
from bench.readers import PATIENCE_SECONDS, measure_capture, measure_pg_recvlogical
from bench.results import Measurement
from bench.search_server import HELPER, INTO_SEARCH, SearchIndexes, measure_bulk_helper
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.settings import FROM_LOG, INTO_LAKES, INTO_RABBIT, INTO_TABLES, turns
from bench.spark_lakes import SPARK_MERGE, measure_spark_merge
from bench.target import Contents, Target, Targets, contents, require_equal
from bench.transformers import rules_of
from bench.workloads import Load, Workload
from penstock.changelog.changelog import ChangeLog

_NATIVE_SLOT = "bench_native_subscription"
# Their slots are copies of the reference's.
_WITHOUT_PIPELINE = ("pg_recvlogical", "native_subscription")

Say = Callable[[str], None]


class BacklogBench:
    """Measures one workload. All systems read the same WAL, each through a slot of its own."""

    def __init__(
        self,
        database: BenchDatabase,
        workload: Workload,
        targets: Targets | None,
        places: Places,
    ) -> None:
        self._database = database
        self._workload = workload
        self._targets = targets
        self._places = places

    def run(self, systems: tuple[str, ...], rounds: int, say: Say) -> Iterator[Measurement]:
        """Write the backlog, then yield a measurement for each round and system."""
        workload, database = self._workload, self._database
        workload.create(database.conn)
        # The warm-up has a database of its own, and destinations tell pipelines apart by name.
        label = f"{database.name.removeprefix('bench_')}_{workload.label}"
        # All slots are made before the load, so that all of them see it whole. The reference's
        # is never read: who has no pipeline gets a copy of it each time.
        reference = database.pipeline(f"{label}_reference")
        pipelines = {
            (system, number): database.pipeline(
                name := f"{label}_{system}_{number}",
                self._destination(system, number, name),
                self._parts(system),
                **self._change_log(system),
            )
            for system in systems
            if system not in _WITHOUT_PIPELINE
            for number in range(rounds)
        }
        began = time.monotonic()
        load = workload.load(database.conn)
        say(f"{workload.title}: {load.changes:,} changes in {time.monotonic() - began:.0f} s")
        database.settle()
        compared = {*INTO_TABLES, *INTO_SEARCH}
        expected = contents(database.conn) if compared & set(systems) else {}
        for number, system in turns(systems, rounds):
            pipeline = pipelines.get((system, number), reference)
            measured = replace(
                self._measure(system, number, pipeline, load, expected),
                phase=workload.phase,
            )
            if pipeline is not reference:
                self._remove(pipeline)
            say(
                f"{workload.title} round {number + 1} of {rounds}: {system}"
                f" {measured.rows_per_s:,.0f} rows/s"
            )
            yield measured
        database.drop_slot(reference.slot)

    def _destination(self, system: str, number: int, name: str) -> Mapping[str, Any] | None:
        places = self._places
        if system == "kafka" and places.kafka is not None:
            return places.kafka.destination
        if system == "search" and places.search is not None:
            return places.search.destination
        if system in INTO_RABBIT and places.rabbit is not None:
            return places.rabbit.destination_of(system, name)
        if system in INTO_LAKES and places.lakes is not None:
            return places.lakes.destination(FROM_LOG.get(system, system), name)
        if system == "clickhouse" and places.clickhouse is not None:
            return places.clickhouse.destination(name)
        if system not in INTO_TABLES:
            return None
        return {"type": "postgres", "url": self._require_targets().url(system, number)}

    def _change_log(self, system: str) -> Mapping[str, Any]:
        # Then the slot has nothing left to send when the log alone is read.
        if system in FROM_LOG:
            return {"confirm": "log"}
        return change_log_of(system, self._places.objects)

    def _parts(self, system: str) -> Mapping[str, Any]:
        if system in INTO_LAKES and self._places.lakes is not None:
            return self._places.lakes.parts(system)
        return rules_of(system)

    def _measure(
        self, system: str, number: int, pipeline: BenchPipeline, load: Load, expected: Contents
    ) -> Measurement:
        name, database, places = self._workload.name, self._database, self._places
        if system == "pg_recvlogical":
            return measure_pg_recvlogical(database, name, pipeline, load)
        if system == "capture":
            return measure_capture(database, name, pipeline, load)
        if system in INTO_SEARCH and places.search is not None:
            return self._into_search(system, places.search, pipeline, load, expected)
        if system == BARE and places.rabbit is not None:
            return places.rabbit.measure_bare(database, name, pipeline, load)
        if system == SPARK_MERGE and places.iceberg is not None:
            return measure_spark_merge(places.iceberg, database, name, pipeline, load)
        if system not in INTO_TABLES:
            if system in FROM_LOG:
                measured = self._from_log(system, pipeline, load, None)
            else:
                measured = self._delivery(system, self._pipeline(system, pipeline), load, None)
            if places.kafka is not None and system == "kafka":
                places.kafka.require_all(pipeline.config.name, load.changes)
            if places.rabbit is not None and system in INTO_RABBIT:
                places.rabbit.require_all(pipeline.config.destination["exchange"], load.changes)
            if places.lakes is not None and system in INTO_LAKES:
                places.lakes.require_all(system, pipeline.config, database.conn)
            if places.clickhouse is not None and system == "clickhouse":
                places.clickhouse.require_all(system, pipeline.config, database.conn)
            return measured
        target = self._target(system, number)
        target.settle()
        if system == "native_subscription":
            database.copy_slot(pipeline.slot, _NATIVE_SLOT)
            publication = pipeline.subscription.publication
            native = NativeSubscription(target, database.url, publication, _NATIVE_SLOT)
            measured = self._delivery(system, native, load, target)
            database.drop_slot(_NATIVE_SLOT)
        elif system in FROM_LOG:
            measured = self._from_log(system, pipeline, load, target)
        else:
            measured = self._delivery(system, self._pipeline(system, pipeline), load, target)
        require_equal(system, expected, contents(target.conn))
        self._require_targets().measured(system, number)
        return measured

    def _into_search(
        self,
        system: str,
        search: SearchIndexes,
        pipeline: BenchPipeline,
        load: Load,
        expected: Contents,
    ) -> Measurement:
        if system == HELPER:
            name = self._workload.name
            measured = measure_bulk_helper(search, self._database, name, pipeline, load)
        else:
            measured = self._delivery(system, self._pipeline(system, pipeline), load, None)
        search.require_all(system, pipeline.config.name, expected)
        return measured

    def _delivery(
        self, system: str, follower: Follower, load: Load, target: Target | None
    ) -> Measurement:
        follower.start()
        walsender = self._database.walsender(follower.slot, follower.pump)
        return self._followed(
            system, follower, load, target, walsender.since, walsender.cpu_seconds
        )

    def _from_log(
        self, system: str, pipeline: BenchPipeline, load: Load, target: Target | None
    ) -> Measurement:
        """From the moment at which the destination was told where it stands."""
        measure_capture(self._database, self._workload.name, pipeline, load)
        follower = self._pipeline(system, pipeline, captures=False)
        follower.start()
        since = follower.standing_since(PATIENCE_SECONDS)
        return self._followed(system, follower, load, target, since, lambda: 0.0)

    def _followed(
        self,
        system: str,
        follower: Follower,
        load: Load,
        target: Target | None,
        since: float,
        source_cpu: Callable[[], float],
    ) -> Measurement:
        with Meter(follower.processes, source_cpu, target) as meter:
            delivered = follower.delivery_of(load.last_commit, PATIENCE_SECONDS)
            spent = meter.read()
        follower.stop()
        return Measurement(
            self._workload.name,
            system,
            load.changes,
            delivered.at - since,
            spent.cpu_s,
            spent.server_cpu_s,
            spent.peak_rss_mb,
            rss_mb=spent.rss_mb,
            peak_pss_mb=spent.peak_pss_mb,
            pss_mb=spent.pss_mb,
            destination_cpu_s=spent.destination_cpu_s,
            stage_cpu_s=spent.stage_cpu_s,
        )

    def _pipeline(
        self, system: str, pipeline: BenchPipeline, *, captures: bool = True
    ) -> PipelineFollower:
        spark = self._places.spark_of(system)
        if spark is None:
            raise BenchError("There is no Spark session.", remedy="Name a pipeline in SYSTEMS.")
        cluster = self._places.clusters.get(system)
        executors = cluster.executors if cluster else list[int]
        return PipelineFollower(spark, pipeline, captures=captures, executors=executors)

    def _target(self, system: str, number: int) -> Target:
        targets = self._require_targets()
        known = targets.known(system, number)
        if known is not None:
            return known
        target = targets.make(system, number)
        if system == "native_subscription":
            # A pipeline makes its tables itself, before its clock runs too.
            self._workload.create(target.conn)
        return target

    def _require_targets(self) -> Targets:
        if self._targets is None:
            raise BenchError(
                "There is no destination server.",
                remedy=f"Name one of {','.join(INTO_TABLES)} in SYSTEMS.",
            )
        return self._targets

    def _remove(self, pipeline: BenchPipeline) -> None:
        """Free the disk: the next system writes as much again."""
        self._database.drop_slot(pipeline.slot)
        ChangeLog.of(pipeline.config.change_log).root.destroy()
