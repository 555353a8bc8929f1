"""What every store promises about the jobs of workers, in memory and on Postgres."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from penstock.model.errors import Fenced
from penstock.store import Store, WorkerReport, copy_jobs, memory_jobs, postgres_jobs
from penstock.store.copy_jobs import JobContent, Lease, LeftJob
from tests.fix_pipeline import wait_until
from tests.fix_store import MakeStore

FIRST = "00000000-0000-0000-0000-00000000000b"
SECOND = "00000000-0000-0000-0000-00000000000a"
HERE = WorkerReport("here:1:a", "here", 1)
THERE = WorkerReport("there:2:b", "there", 2, "public.items", 3, 2**40, 2**41)


@pytest.fixture
def offering(store: Store) -> Store:
    """The driver's store, with two jobs."""
    store.begin_claims("driver")
    jobs = {FIRST: {"text": 'ß "x"', "chunks": [1, None]}, SECOND: {}}
    store.offer_jobs("driver", jobs, needs_driver=False)
    return store


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_jobs, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(copy_jobs, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(postgres_jobs, "_LEASED_FOR", timedelta(seconds=0.3))


class TestLeases:
    def test_each_job_is_given_out_once_in_order(
        self, offering: Store, make_store: MakeStore
    ) -> None:
        first, second = make_store().lease_job("a"), make_store().lease_job("b")
        assert first is not None
        assert second is not None
        assert (first.job, first.content) == (FIRST, {"text": 'ß "x"', "chunks": [1, None]})
        assert (second.job, second.content, second.attempt) == (SECOND, {}, 1)
        assert make_store().lease_job("c") is None
        assert make_store("another").lease_job("c") is None

    def test_many_who_ask_at_once(self, offering: Store, make_store: MakeStore) -> None:
        jobs: dict[str, JobContent] = {f"{FIRST[:-3]}1{n:02}": {} for n in range(20)}
        offering.offer_jobs("driver", jobs, needs_driver=False)
        stores = [make_store() for _ in range(4)]
        begin = threading.Barrier(4)

        def lease(store: Store) -> list[str]:
            begin.wait()
            return [each.job for _ in range(8) if (each := store.lease_job("w")) is not None]

        with ThreadPoolExecutor(4) as pool:
            found = [job for some in pool.map(lease, stores) for job in some]
        assert sorted(found) == sorted([FIRST, SECOND, *jobs])

    def test_results_reach_the_driver(self, offering: Store, make_store: MakeStore) -> None:
        worker = make_store()
        lease = worker.lease_job("a")
        assert lease is not None
        assert offering.job_results("driver") == {}
        assert worker.finish_job("a", lease, "done ß")
        assert offering.job_results("driver") == {FIRST: "done ß"}
        # It was not heard that it was handed in.
        assert not worker.finish_job("a", lease, "again")
        assert not worker.worker_beat(HERE, lease)
        assert offering.job_results("driver") == {FIRST: "done ß"}
        offering.forget_jobs([FIRST])
        assert offering.job_results("driver") == {}

    @pytest.mark.usefixtures("short_leases")
    def test_who_is_late_has_nothing(self, offering: Store, make_store: MakeStore) -> None:
        worker, other = make_store(), make_store()
        late = worker.lease_job("a")
        assert late is not None
        assert offering.take_jobs_back("driver", [FIRST]) == set()
        again = wait_until(lambda: _lease_of(other, FIRST), "the lease has run out")
        assert again is not None
        assert again.attempt > late.attempt
        assert not worker.worker_beat(HERE, late)
        assert not worker.finish_job("a", late, "late")
        worker.give_job_back("a", late)
        assert other.finish_job("b", again, "in time")
        assert offering.job_results("driver") == {FIRST: "in time"}

    @pytest.mark.usefixtures("short_leases")
    def test_who_renews_keeps_it(self, offering: Store, make_store: MakeStore) -> None:
        worker, other = make_store(), make_store()
        lease = worker.lease_job("a")
        assert lease is not None
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            # A machine may be slow: then the lease runs out, and nothing is shown.
            held = worker.worker_beat(HERE, lease)
            taken = _lease_of(other, FIRST)
            assert not (held and taken) or not worker.worker_beat(HERE, lease)
            if taken:
                return
        assert worker.finish_job("a", lease, "done")

    def test_what_is_given_back_is_free(self, offering: Store, make_store: MakeStore) -> None:
        worker = make_store()
        lease = worker.lease_job("a")
        assert lease is not None
        worker.give_job_back("a", lease)
        again = worker.lease_job("a")
        assert again is not None
        assert again.job == FIRST
        worker.worker_left("a")
        third = worker.lease_job("b")
        assert third is not None
        assert third.job == FIRST
        assert not worker.finish_job("a", again, "late")

    def test_who_sleeps_and_wakes_as_the_same_has_nothing_either(
        self, offering: Store, make_store: MakeStore
    ) -> None:
        worker = make_store()
        lease = worker.lease_job("a")
        assert lease is not None
        worker.give_job_back("a", lease)
        again = worker.lease_job("a")
        assert again is not None
        assert not worker.finish_job("a", lease, "of the first attempt")
        assert worker.finish_job("a", again, "of the second")


class TestDrivers:
    def test_only_the_last_driver_offers(self, offering: Store, make_store: MakeStore) -> None:
        later = make_store()
        later.begin_claims("later")
        with pytest.raises(Fenced):
            offering.offer_jobs("driver", {FIRST: {}}, needs_driver=False)

    def test_free_jobs_are_taken_back(self, offering: Store, make_store: MakeStore) -> None:
        lease = make_store().lease_job("a")
        assert lease is not None
        assert offering.take_jobs_back("driver", [FIRST, SECOND]) == {SECOND}
        # The answer may have been lost.
        assert offering.take_jobs_back("driver", [FIRST, SECOND]) == {SECOND}
        assert make_store().lease_job("b") is None
        assert make_store().finish_job("a", lease, "done")
        assert offering.take_jobs_back("driver", [FIRST]) == set()

    def test_what_was_done_for_the_driver_before(
        self, offering: Store, make_store: MakeStore
    ) -> None:
        worker = make_store()
        done, under_way = worker.lease_job("a"), worker.lease_job("a")
        assert done is not None
        assert under_way is not None
        assert worker.finish_job("a", done, "done")
        later = make_store()
        later.begin_claims("later")
        assert later.take_left_jobs("later") == [LeftJob(done.content, "done")]
        assert later.take_left_jobs("later") == []
        assert not worker.finish_job("a", under_way, "too late")
        assert worker.lease_job("a") is None

    @pytest.mark.usefixtures("short_leases")
    def test_jobs_that_need_their_driver_wait_for_it(
        self, store: Store, make_store: MakeStore
    ) -> None:
        store.begin_claims("driver")
        assert store.driver_silence() is None
        store.offer_jobs("driver", {FIRST: {}}, needs_driver=True)
        worker = make_store()
        assert worker.lease_job("a") is None

        def heard() -> Lease | None:
            store.job_results("driver")
            return worker.lease_job("a")

        lease = wait_until(heard, "the driver is heard of")
        assert lease is not None
        worker.give_job_back("a", lease)
        wait_until(lambda: (worker.driver_silence() or 0) > 0.3, "the driver is silent")
        assert worker.lease_job("a") is None


class TestWorkers:
    def test_they_are_seen(self, store: Store, make_store: MakeStore) -> None:
        make_store().worker_beat(THERE)
        make_store().worker_beat(HERE)
        found = store.load_workers()
        assert [seen.report for seen in found] == [HERE, THERE]
        assert all(seen.since.utcoffset() is not None for seen in found)
        assert make_store("another").load_workers() == []
        make_store().worker_left(HERE.worker)
        assert [seen.report for seen in store.load_workers()] == [THERE]

    @pytest.mark.usefixtures("short_leases")
    def test_one_that_is_silent_is_not_alive(self, store: Store) -> None:
        store.worker_beat(HERE)
        wait_until(lambda: not store.load_workers()[0].is_alive, "it was silent for long")

    def test_nothing_stays_of_a_pipeline(self, offering: Store, make_store: MakeStore) -> None:
        make_store().worker_beat(HERE)
        assert offering.forget_pipeline()
        again = make_store()
        assert (again.load_workers(), again.lease_job("a")) == ([], None)


def _lease_of(store: Store, job: str) -> Lease | None:
    """A lease of that job; others are taken on the way, and kept."""
    lease = store.lease_job("b")
    return lease if lease is not None and lease.job == job else None
