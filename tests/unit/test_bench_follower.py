"""Native subscription and targets, on a real server that is source and destination in one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from bench.follower import NativeSubscription
from bench.latency import Commits, delivery_times
from bench.meter import Meter
from bench.server import BenchError
from bench.target import Target, Targets, contents, require_equal
from bench.workloads import Connection, scaled_mix, w1, w1_phases
from penstock.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.release

SMALL = 0.001
PATIENCE = 60.0


@dataclass(frozen=True)
class Pair:
    source: Connection
    target: Target
    native: NativeSubscription


@pytest.fixture
def target(pg_server: EmbeddedPostgres) -> Iterator[Target]:
    targets = Targets(pg_server, "test_bench")
    yield targets.make("native_subscription", 0)
    targets.measured("native_subscription", 0)


@pytest.fixture
def pair(database: str, target: Target) -> Iterator[Pair]:
    """A table with a subscription that has started."""
    with psycopg.connect(database, autocommit=True) as source:
        w1(SMALL).create(source)
        w1(SMALL).create(target.conn)
        source.execute("CREATE PUBLICATION bench_test FOR TABLE item")
        for slot in ("bench_test", "bench_test_look"):
            source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        native = NativeSubscription(target, database, "bench_test", "bench_test")
        native.start()
        try:
            yield Pair(source, target, native)
        finally:
            native.stop()


def test_a_subscription_delivers_a_load_and_says_when(pair: Pair) -> None:
    began = time.time()
    load = w1(SMALL).load(pair.source)
    with Meter(pair.native.processes, pair.target.cpu_seconds, pair.target) as meter:
        delivered = pair.native.delivery_of(load.last_commit, PATIENCE)
        spent = meter.read()
    require_equal("native", contents(pair.source), contents(pair.target.conn))
    assert began < delivered.at < time.time()
    assert spent.rss_mb["apply"] > 1
    assert spent.peak_pss_mb is not None
    assert spent.destination_cpu_s is not None
    commits = Commits.of_slot(pair.source, "bench_test_look", "bench_test")
    mix = scaled_mix(SMALL)
    assert len(commits.lsn) == mix.inserts + mix.updates + mix.deletes
    assert (delivery_times(commits.lsn, pair.native.delivered) > commits.at).all()


def test_a_subscription_that_fails_shows_the_reason(pair: Pair) -> None:
    pair.target.conn.execute("ALTER TABLE item ADD CHECK (quantity IS NULL)")
    load = w1(SMALL).load(pair.source)
    with pytest.raises(BenchError, match="item_quantity_check"):
        pair.native.delivery_of(load.last_commit, PATIENCE)


def test_phases_leave_what_the_whole_workload_leaves(database: str, target: Target) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        w1(SMALL).create(conn)
        whole = w1(SMALL).load(conn)
        changes, last_commit = 0, 0
        for phase in w1_phases(SMALL):
            phase.create(target.conn)
            load = phase.load(target.conn)
            assert load.last_commit > last_commit
            changes, last_commit = changes + load.changes, load.last_commit
        assert changes == whole.changes
        assert contents(conn) == contents(target.conn)


def test_contents_see_values_and_not_the_order_of_rows(database: str, target: Target) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for one, sign in ((conn, 1), (target.conn, -1)):
            one.execute("CREATE TABLE thing (id int, name text)")
            one.execute(
                "INSERT INTO thing SELECT i, 'n' || i FROM generate_series(1, 9) i"
                " ORDER BY i * %s::int",
                [sign],
            )
        require_equal("native", contents(conn), contents(target.conn))
        target.conn.execute("UPDATE thing SET name = 'x' WHERE id = 5")
        with pytest.raises(BenchError, match="thing has 9 rows in the source and 9 in"):
            require_equal("native", contents(conn), contents(target.conn))
        conn.execute("CREATE TABLE another (id int)")
        with pytest.raises(BenchError, match="2 of 2 tables differ"):
            require_equal("native", contents(conn), contents(target.conn))
