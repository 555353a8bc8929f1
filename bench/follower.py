"""Those that deliver what a slot gives: a pipeline on the warm Spark, a native subscription."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from psycopg import sql

from bench.process_usage import forget_peak, pipeline_processes
from bench.server import BenchError, BenchPipeline
from bench.target import Target
from bench.warm_spark import WarmSpark
from penstock.model.lsn import Frontier, parse_lsn
from penstock.pipeline.run.batch_committer import Delivered

_SUBSCRIPTION = "bench"
# How often the subscription is asked how far it is; bounds by how much it is seen too late.
_LOOK_SECONDS = 0.005
_LOG_TAIL_BYTES = 2000


class Follower(Protocol):
    """Something that takes the changes of one slot somewhere."""

    @property
    def slot(self) -> str: ...

    @property
    def delivered(self) -> list[Delivered]:
        """What has been delivered so far, and when."""

    def start(self) -> None: ...

    def pump(self, seconds: float = 0.0) -> None:
        """Take note of deliveries, for at most so long; raises what broke."""

    def delivery_of(self, commit_lsn: int, patience: float) -> Delivered:
        """Wait until everything up to a commit is delivered."""

    def processes(self) -> dict[str, list[int]]:
        """Its own processes, by part."""

    def stop(self) -> None: ...


class PipelineFollower:
    """A whole pipeline, whatever its destination is."""

    def __init__(
        self,
        spark: WarmSpark,
        pipeline: BenchPipeline,
        *,
        captures: bool = True,
        executors: Callable[[], list[int]] = list,
    ) -> None:
        """Without ``captures`` it delivers what its log holds already. ``executors`` are processes
        of a cluster.
        """
        self._spark = spark
        self._executors = executors
        self._captures = captures
        self._pipeline = pipeline
        self.pump = spark.pump
        self.delivery_of = spark.delivery_of
        self.stop = spark.stop

    @property
    def slot(self) -> str:
        return self._pipeline.slot

    @property
    def delivered(self) -> list[Delivered]:
        return self._spark.delivered

    def start(self) -> None:
        # The session has seen other workloads before: peak memory counts from now on.
        for pids in self.processes().values():
            for pid in pids:
                forget_peak(pid)
        self._spark.start(self._pipeline.file, captures=self._captures)

    def standing_since(self, patience: float) -> float:
        """When it had told its destination where it stands, which it does before all else."""
        return self.delivery_of(0, patience).at

    def processes(self) -> dict[str, list[int]]:
        parts = pipeline_processes(self._spark.pid)
        parts["workers"] += self._executors()
        return parts


class NativeSubscription:
    """CREATE SUBSCRIPTION. Its tables exist in the target already, and its slot in the source.

    Values go as text, as they do by default, and a large transaction is sent at its commit
    (streaming = off), as it is to all other systems of the benchmark.
    """

    def __init__(self, target: Target, source_url: str, publication: str, slot: str) -> None:
        self._conn = target.conn
        self._server = target.server
        self._source_url = source_url
        self._publication = publication
        self._slot = slot
        self._origin = ""
        self.delivered: list[Delivered] = []

    @property
    def slot(self) -> str:
        return self._slot

    def start(self) -> None:
        self._conn.execute(
            sql.SQL(
                "CREATE SUBSCRIPTION {} CONNECTION {} PUBLICATION {} WITH (copy_data = false,"
                " create_slot = false, slot_name = {}, binary = false, streaming = off)"
            ).format(
                sql.Identifier(_SUBSCRIPTION),
                sql.Literal(self._source_url),
                sql.Identifier(self._publication),
                sql.Literal(self._slot),
            )
        )
        row = self._conn.execute(
            "SELECT 'pg_' || oid FROM pg_subscription WHERE subname = %s", [_SUBSCRIPTION]
        ).fetchone()
        assert row is not None  # noqa: S101 (it was created above)
        self._origin = str(row[0])

    def pump(self, seconds: float = 0.0) -> None:
        end = time.monotonic() + seconds
        while True:
            self._look()
            if time.monotonic() >= end:
                break
            time.sleep(_LOOK_SECONDS)
        self._require_health()

    def delivery_of(self, commit_lsn: int, patience: float) -> Delivered:
        deadline = time.monotonic() + patience
        while not self.delivered or self.delivered[-1].frontier.commit_lsn < commit_lsn:
            if time.monotonic() > deadline:
                raise BenchError(
                    f"The subscription did not apply everything within {patience:g} s.",
                    remedy="Try a smaller SCALE.",
                )
            self.pump(0.1)
        return next(d for d in self.delivered if d.frontier.commit_lsn >= commit_lsn)

    def processes(self) -> dict[str, list[int]]:
        rows = self._conn.execute(
            "SELECT pid FROM pg_stat_subscription WHERE subname = %s AND pid IS NOT NULL",
            [_SUBSCRIPTION],
        ).fetchall()
        return {"apply": [int(row[0]) for row in rows]}

    def stop(self) -> None:
        subscription = sql.Identifier(_SUBSCRIPTION)
        self._conn.execute(sql.SQL("ALTER SUBSCRIPTION {} DISABLE").format(subscription))
        # The slot belongs to the bench.
        self._conn.execute(
            sql.SQL("ALTER SUBSCRIPTION {} SET (slot_name = NONE)").format(subscription)
        )
        self._conn.execute(sql.SQL("DROP SUBSCRIPTION {}").format(subscription))

    def _look(self) -> None:
        """Note how far it is, if that is further than before."""
        row = self._conn.execute(
            "SELECT pg_replication_origin_progress(%s, false)::text", [self._origin]
        ).fetchone()
        now = time.time()
        if row is None or row[0] is None:
            return
        # The end of the last commit record that it applied: the record itself begins before.
        end = parse_lsn(str(row[0]))
        if end and (not self.delivered or self.delivered[-1].frontier.end_lsn < end):
            self.delivered.append(Delivered(Frontier(end - 1, end), 1, now))

    def _require_health(self) -> None:
        row = self._conn.execute(
            "SELECT apply_error_count FROM pg_stat_subscription_stats WHERE subname = %s",
            [_SUBSCRIPTION],
        ).fetchone()
        if row is not None and row[0]:
            with self._server.log_path.open("rb") as log:
                log.seek(max(0, self._server.log_path.stat().st_size - _LOG_TAIL_BYTES))
                tail = log.read().decode(errors="replace")
            raise BenchError(
                f"The native subscription failed. The destination server's log ends with:\n{tail}",
                remedy="The log above names the cause.",
            )
