"""What every store promises about copies, claims, wishes and rules, in memory and on Postgres."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from penstock.model.errors import Fenced, StoreError
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Init
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.store import ChunkDone, Store
from tests.fix_store import MakeStore

TABLE = 4_000_000_001  # beyond what a signed integer of 32 bits holds, as an oid may be
OTHER = 16_385
FIRST, SECOND = 2**63 + 5, 2**63 + 900


def plan(table: int, chunks: int = 3, where: str | None = None) -> CopyPlan:
    return CopyPlan(
        table,
        ("id", 'odd "name"'),
        where,
        tuple(
            Chunk(table, n, table + 7, "shop", "Order s", 99, n * 10, None if n else 10, 5 * 10**9)
            for n in range(chunks)
        ),
    )


class TestCopies:
    def test_nothing_is_known_at_first(self, store: Store) -> None:
        assert store.load_copies() == 0
        assert store.get_copies() == {}
        assert store.get_copy(TABLE) is None

    def test_progress_is_kept(self, store: Store, make_store: MakeStore) -> None:
        store.start_copy(TABLE, plan(TABLE, where="note <> E'\\\\x' AND \"a\" > 'ß'"), FIRST)
        store.chunks_done({(TABLE, 0): (7, 5 * 10**9), (TABLE, 2): (0, 0)})
        for found in (store, make_store()):
            copy = found.get_copy(TABLE)
            assert copy is not None
            assert copy.plan == plan(TABLE, where="note <> E'\\\\x' AND \"a\" > 'ß'")
            assert (copy.first_lsn, copy.last_lsn, copy.snapshots) == (FIRST, FIRST, 1)
            assert copy.done == {0: ChunkDone(7, 5 * 10**9), 2: ChunkDone(0, 0)}
            assert (copy.rows_done, copy.bytes_done, copy.is_complete) == (7, 5 * 10**9, False)
            assert copy.started_at.utcoffset() is not None
            assert found.get_copies() == {TABLE: copy}
        store.chunks_done({(TABLE, 1): (3, 4), (TABLE, 0): (7, 5 * 10**9)})
        done = make_store().get_copies()[TABLE]
        assert done == store.get_copies()[TABLE]
        assert (done.rows_done, done.is_complete) == (10, True)

    def test_a_later_snapshot(self, store: Store, make_store: MakeStore) -> None:
        store.start_copies({TABLE: plan(TABLE), OTHER: plan(OTHER)}, FIRST)
        store.chunks_done({(TABLE, 0): (7, 70)})
        store.copy_snapshot(TABLE, SECOND)
        for found in (store, make_store()):
            copy = found.get_copies()[TABLE]
            assert (copy.first_lsn, copy.last_lsn, copy.snapshots) == (FIRST, SECOND, 2)
            assert copy.done == {0: ChunkDone(7, 70)}
            assert found.get_copies()[OTHER].snapshots == 1

    def test_starting_again_forgets_what_was_done(
        self, store: Store, make_store: MakeStore
    ) -> None:
        store.start_copies({TABLE: plan(TABLE), OTHER: plan(OTHER)}, FIRST)
        store.chunks_done({(TABLE, 0): (7, 70), (OTHER, 1): (8, 80)})
        before = store.get_copies()
        store.copy_snapshot(TABLE, FIRST + 1)
        store.start_copy(TABLE, plan(TABLE, 5), SECOND)
        for found in (store, make_store()):
            copy = found.get_copies()[TABLE]
            assert (copy.first_lsn, copy.last_lsn, copy.snapshots) == (SECOND, SECOND, 1)
            assert (copy.done, len(copy.plan.chunks)) == ({}, 5)
            assert copy.copy_id != before[TABLE].copy_id
            assert found.get_copies()[OTHER] == before[OTHER]

    def test_a_chunk_of_a_copy_that_was_started_again_is_refused(
        self, store: Store, make_store: MakeStore
    ) -> None:
        """A driver that does not know yet that another has taken over."""
        store.start_copies({TABLE: plan(TABLE), OTHER: plan(OTHER)}, FIRST)
        second = make_store()
        second.start_copy(TABLE, plan(TABLE), FIRST)
        chunks = {(OTHER, 0): (1, 1), (TABLE, 0): (1, 1)}
        with pytest.raises(StoreError, match=f"oid {TABLE} .* no longer the one in the store"):
            store.chunks_done(chunks)
        with pytest.raises(StoreError, match="no longer the one in the store"):
            store.copy_snapshots([OTHER, TABLE], SECOND)
        for found in (store, make_store()):
            assert found.get_copies()[OTHER].done == {}
            assert found.get_copies()[OTHER].snapshots == 1
        second.forget_copy([TABLE])
        store.load_copies()
        with pytest.raises(StoreError, match="no longer the one in the store"):
            store.chunks_done(chunks)
        store.chunks_done({(OTHER, 0): (1, 1)})

    def test_forgetting(self, store: Store, make_store: MakeStore) -> None:
        store.start_copies({TABLE: plan(TABLE), OTHER: plan(OTHER)}, FIRST)
        store.chunks_done({(TABLE, 0): (7, 70), (OTHER, 0): (8, 80)})
        store.forget_copy([TABLE, 17])
        for found in (store, make_store()):
            assert list(found.get_copies()) == [OTHER]
        store.start_copy(TABLE, plan(TABLE), SECOND)
        assert make_store().get_copies()[TABLE].done == {}

    def test_a_thousand_tables(self, store: Store, make_store: MakeStore) -> None:
        plans = {table: plan(table) for table in range(1, 1001)}
        store.start_copies(plans, FIRST)
        store.chunks_done(dict.fromkeys(product(plans, range(3)), (1, 10)))
        store.copy_snapshots(plans, SECOND)
        copies = make_store().get_copies()
        assert copies == store.get_copies()
        assert all(copy.is_complete and copy.snapshots == 2 for copy in copies.values())
        store.forget_copy(plans)
        assert make_store().get_copies() == {}

    def test_pipelines_do_not_meet(self, store: Store, make_store: MakeStore) -> None:
        other = make_store("warehouse")
        for found in (store, other):
            found.start_copy(TABLE, plan(TABLE), FIRST)
            found.set_wish(TABLE, "paused")
            found.set_rule("shop", "items", "add")
            found.begin_claims("me")
            assert found.claim_copies("me", [TABLE]) == {TABLE}
        store.chunks_done({(TABLE, 0): (7, 70)})
        store.set_wish(TABLE, None)
        store.set_rule("shop", "items", None)
        store.release_claims("me")
        other = make_store("warehouse")
        assert other.get_copies()[TABLE].done == {}
        assert (other.get_wish(TABLE), other.load_claims()) == ("paused", {TABLE: "me"})
        assert other.get_rules() == {("shop", "items"): "add"}


class TestClaims:
    def test_who_begins_takes_over(self, store: Store, make_store: MakeStore) -> None:
        second = make_store()
        store.begin_claims("old")
        assert store.claim_copies("old", [TABLE, OTHER]) == {TABLE, OTHER}
        assert store.claim_copies("old", [OTHER]) == {OTHER}  # it has it, and gets it again
        assert second.load_claims() == {TABLE: "old", OTHER: "old"}
        second.begin_claims("new")
        assert store.load_claims() == {}
        with pytest.raises(Fenced, match=r"Worker old takes no more .* worker new has taken over"):
            store.claim_copies("old", [TABLE])
        assert second.claim_copies("new", [TABLE]) == {TABLE}
        assert store.load_claims() == {TABLE: "new"}
        # What the old one gives back is not its own any more.
        store.release_claims("old")
        assert store.load_claims() == {TABLE: "new"}

    def test_beginning_again_keeps_what_one_has(self, store: Store) -> None:
        store.begin_claims("me")
        store.claim_copies("me", [TABLE])
        store.begin_claims("me")
        assert store.load_claims() == {TABLE: "me"}

    def test_nobody_has_begun(self, store: Store) -> None:
        with pytest.raises(Fenced, match="it has not begun"):
            store.claim_copies("me", [TABLE])

    def test_giving_back(self, store: Store) -> None:
        store.begin_claims("me")
        store.claim_copies("me", [TABLE, OTHER])
        store.release_claims("me", [OTHER, 17])
        assert store.load_claims() == {TABLE: "me"}
        store.release_claims("me")
        assert store.load_claims() == {}

    def test_two_drivers_at_once(self, make_store: MakeStore) -> None:
        """Both begin and go on claiming: one of them is told to stop, the other has all."""
        tables = list(range(1, 101))
        for _ in range(5):
            stores = {"a": make_store(), "b": make_store()}
            together, one_is_out = threading.Barrier(2), threading.Event()

            def drive(
                worker: str,
                store: Store,
                together: threading.Barrier = together,
                one_is_out: threading.Event = one_is_out,
            ) -> bool:
                """Whether it was told to stop."""
                together.wait(60)
                store.begin_claims(worker)
                while not one_is_out.is_set():
                    for table in tables:
                        try:
                            assert store.claim_copies(worker, [table]) == {table}
                        except Fenced:
                            one_is_out.set()
                            return True
                assert store.claim_copies(worker, tables) == set(tables)
                return False

            with ThreadPoolExecutor(2) as pool:
                futures = {worker: pool.submit(drive, worker, stores[worker]) for worker in stores}
                (winner,) = [worker for worker, future in futures.items() if not future.result()]
            assert stores["a"].load_claims() == dict.fromkeys(tables, winner)


class TestWishes:
    def test_kept_replaced_and_taken_back(self, store: Store, make_store: MakeStore) -> None:
        second = make_store()
        store.set_wishes({TABLE: "paused", OTHER: "resync", 17: "cancelled"})
        store.set_wish(TABLE, "cancelled")
        store.set_wishes({17: None, 18: None})
        assert store.get_wish(TABLE) == "cancelled"
        assert second.get_wish(TABLE) is None
        for found in (store, second):
            assert found.load_wishes() == {TABLE: "cancelled", OTHER: "resync"}

    def test_a_wish_that_came_meanwhile_is_not_met(
        self, store: Store, make_store: MakeStore
    ) -> None:
        store.set_wishes({TABLE: "resync", OTHER: "resync"})
        make_store().set_wish(OTHER, "paused")
        store.fulfil_wishes({TABLE: "resync", OTHER: "resync", 17: "paused"})
        assert store.load_wishes() == {OTHER: "paused"}


class TestRules:
    def test_kept_replaced_and_taken_back(self, store: Store, make_store: MakeStore) -> None:
        second = make_store()
        store.set_rules({("shop", "items"): "add", ("My Shop", 'a."b'): "add", ("a", "b"): "add"})
        store.set_rule("shop", "items", "remove")
        store.set_rules({("a", "b"): None, ("a", "c"): None})
        assert second.get_rules() == {}
        expected = {("shop", "items"): "remove", ("My Shop", 'a."b'): "add"}
        for found in (store, second):
            assert found.load_rules() == expected
            assert found.get_rules() == expected


def test_forgotten_tables_leave_nothing(store: Store, make_store: MakeStore) -> None:
    store.begin_claims("me")
    for table in (TABLE, OTHER):
        store.store_table_schema(TableDefinition(table, "shop", "orders", "d", ()), 100)
        store.update_table_state(table, Init())
        store.set_notes(table, ["no index"])
        store.start_copy(table, plan(table), FIRST)
        store.chunks_done({(table, 0): (1, 10)})
        store.set_wish(table, "paused")
        store.claim_copies("me", [table])
    store.set_rule("shop", "orders", "remove")
    store.forget_tables([TABLE, 17])
    for found in (store, make_store()):
        assert list(found.get_table_states()) == [OTHER]
        assert list(found.get_table_schemas()) == [OTHER]
        assert list(found.load_notes()) == [OTHER]
        assert list(found.get_copies()) == [OTHER]
        assert found.load_wishes() == {OTHER: "paused"}
        assert found.load_claims() == {OTHER: "me"}
        # It is why the tables left, and about a name.
        assert found.get_rules() == {("shop", "orders"): "remove"}
    with pytest.raises(StoreError, match="holds no state"):
        store.rollback_table_state(TABLE)


def test_a_forgotten_pipeline_takes_its_copies_along(store: Store, make_store: MakeStore) -> None:
    other = make_store("warehouse")
    for found in (store, other):
        found.start_copy(TABLE, plan(TABLE), FIRST)
        found.set_wish(TABLE, "paused")
        found.set_rule("shop", "orders", "add")
        found.begin_claims("me")
        found.claim_copies("me", [TABLE])
    assert store.forget_pipeline()
    for found in (store, make_store()):
        assert (found.get_copies(), found.load_wishes(), found.get_rules()) == ({}, {}, {})
        assert found.load_claims() == {}
    assert not store.forget_pipeline()
    other = make_store("warehouse")
    assert (list(other.get_copies()), other.get_wish(TABLE)) == ([TABLE], "paused")
