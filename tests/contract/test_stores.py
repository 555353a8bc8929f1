"""What every store promises, on the memory store and on Postgres."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock.model.errors import StoreError
from penstock.model.publication_state import (
    PublicationOptions,
    PublicationState,
    PublishedTable,
)
from penstock.model.table_definition import (
    ColumnDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)
from penstock.model.table_state import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    Ready,
    SyncDone,
    SyncWait,
    TableState,
    TimedRetry,
)
from penstock.store import Store
from tests.fix_store import MakeStore

TABLE = 4_000_000_001  # beyond what a signed integer of 32 bits holds, as an oid may be
OTHER = 16_385
ERROR = Errored("value too long\0 for \ud800 'x'", "widen it", TimedRetry(2, datetime.now(UTC)))


def definition(*columns: str, oid: int = TABLE, name: str = "orders") -> TableDefinition:
    mood = TypeDefinition("shop", "mood", "enum", labels=("sad", "ok"))
    return TableDefinition(
        oid=oid,
        schema="shop",
        name=name,
        replica_identity="d",
        columns=tuple(
            ColumnDefinition(number, column, TypeName("shop", "mood"), collation=("public", "de"))
            for number, column in enumerate(columns, start=1)
        ),
        primary_key=columns[:1],
        unique_keys=(columns[:1], columns),
        types=(mood,),
    )


def let_the_clock_go_on() -> None:
    """Two looks at it may find the same time, or on some machines an earlier one."""
    time.sleep(0.05)


class TestStates:
    def test_nothing_is_known_at_first(self, store: Store) -> None:
        assert store.load_table_states() == 0
        assert store.get_table_state(TABLE) is None
        assert store.get_state_since(TABLE) is None
        assert store.get_table_states() == {}

    def test_every_state_is_kept_as_it_is(self, store: Store, make_store: MakeStore) -> None:
        way: list[TableState] = [Init(), DataSync(), FinishedCopy(), SyncWait()]
        way += [Catchup(2**63 + 5), SyncDone(2**63 + 5), Ready(), ERROR]
        for state in way:
            store.update_table_state(TABLE, state)
            assert store.get_table_state(TABLE) == state
            assert make_store().get_table_state(TABLE) == state

    def test_since(self, store: Store, make_store: MakeStore) -> None:
        store.update_table_state(TABLE, Init())
        first = store.get_state_since(TABLE)
        store.update_table_state(TABLE, Init())
        assert store.get_state_since(TABLE) == first
        let_the_clock_go_on()
        store.update_table_state(TABLE, Ready())
        second = store.get_state_since(TABLE)
        assert first is not None
        assert second is not None
        assert first < second
        assert second.utcoffset() is not None
        let_the_clock_go_on()
        store.rollback_table_state(TABLE)
        third = store.get_state_since(TABLE)
        assert third is not None
        assert second < third  # it came back now, whenever it was there before
        assert make_store().get_state_since(TABLE) == third

    def test_another_store_sees_it_after_loading(self, store: Store, make_store: MakeStore) -> None:
        second = make_store()
        store.update_table_states({TABLE: Init(), OTHER: Init()})
        store.update_table_state(OTHER, Ready())
        assert second.get_table_states() == {}
        assert second.load_table_states() == 2
        assert second.get_table_states() == {TABLE: Init(), OTHER: Ready()}

    def test_pipelines_do_not_meet(self, store: Store, make_store: MakeStore) -> None:
        store.update_table_state(TABLE, Init())
        other = make_store("warehouse")
        assert other.get_table_states() == {}
        other.update_table_state(TABLE, Init())
        other.update_table_state(TABLE, Ready())
        store.load_table_states()
        assert store.get_table_state(TABLE) == Init()

    def test_what_may_not_follow_changes_nothing(self, store: Store, make_store: MakeStore) -> None:
        store.store_table_schema(definition("id"), 1)
        with pytest.raises(StoreError, match=r"Table shop\.orders: .* it begins at init"):
            store.update_table_state(TABLE, Ready())
        assert make_store().get_table_states() == {}
        store.update_table_state(TABLE, Init())
        with pytest.raises(StoreError, match="in state init cannot become sync_wait"):
            store.update_table_state(TABLE, SyncWait())
        assert store.get_table_state(TABLE) == Init()
        assert make_store().get_table_state(TABLE) == Init()

    def test_many_at_once_are_all_or_none(self, store: Store, make_store: MakeStore) -> None:
        store.update_table_state(OTHER, Init())
        with pytest.raises(StoreError, match=f"The table with oid {TABLE}"):
            store.update_table_states({OTHER: Ready(), TABLE: Ready()})
        for found in (store, make_store()):
            assert found.get_table_states() == {OTHER: Init()}
        with pytest.raises(StoreError, match="no state before init"):
            store.rollback_table_state(OTHER)

    def test_the_stores_state_counts_not_the_caches(
        self, store: Store, make_store: MakeStore
    ) -> None:
        second = make_store()
        store.update_table_state(TABLE, Init())
        store.update_table_state(TABLE, Ready())
        second.update_table_state(TABLE, Init())
        second.update_table_state(TABLE, DataSync())
        second.update_table_state(TABLE, ERROR)
        # The first one still believes in ready, which the same may follow.
        with pytest.raises(StoreError, match="in state errored cannot become ready"):
            store.update_table_state(TABLE, Ready())
        assert store.retry_table(TABLE) == DataSync()


class TestGoingBack:
    def test_step_by_step_to_the_first(self, store: Store, make_store: MakeStore) -> None:
        way: list[TableState] = [Init(), DataSync(), FinishedCopy(), ERROR]
        for state in way:
            store.update_table_state(TABLE, state)
        second = make_store()
        for state in reversed(way[:-1]):
            assert second.rollback_table_state(TABLE) == state
            assert second.get_table_state(TABLE) == state
            assert make_store().get_table_state(TABLE) == state
        with pytest.raises(StoreError, match="no state before init"):
            second.rollback_table_state(TABLE)
        assert second.get_table_state(TABLE) == Init()

    def test_what_was_given_up_is_gone(self, store: Store) -> None:
        for state in (Init(), Ready(), ERROR):
            store.update_table_state(TABLE, state)
        assert store.rollback_table_state(TABLE) == Ready()
        store.update_table_state(TABLE, Init())
        assert store.rollback_table_state(TABLE) == Ready()
        assert store.rollback_table_state(TABLE) == Init()

    def test_without_any_state(self, store: Store) -> None:
        with pytest.raises(StoreError, match=f"holds no state of the table with oid {TABLE}"):
            store.rollback_table_state(TABLE)

    def test_retry_leads_to_before_the_first_of_several_errors(self, store: Store) -> None:
        store.update_table_state(TABLE, Init())
        store.update_table_state(TABLE, Ready())
        store.update_table_state(TABLE, Errored("first"))
        store.update_table_state(TABLE, Errored("second"))
        assert store.get_table_state(TABLE) == Errored("second")
        assert store.retry_table(TABLE) == Ready()
        assert store.rollback_table_state(TABLE) == Init()

    def test_a_resync_of_an_errored_table_leaves_no_error_behind(self, store: Store) -> None:
        for state in (Init(), Ready(), ERROR, Init()):
            store.update_table_state(TABLE, state)
        assert store.get_table_state(TABLE) == Init()
        assert store.rollback_table_state(TABLE) == Ready()

    def test_retry_is_for_errored_tables(self, store: Store, make_store: MakeStore) -> None:
        for state in (Init(), Ready(), ERROR):
            store.update_table_state(TABLE, state)
        second = make_store()
        assert store.retry_table(TABLE) == Ready()
        # The second store still believes in the error; two people must not go back two steps.
        with pytest.raises(StoreError, match="is ready, not errored"):
            second.retry_table(TABLE)
        assert make_store().get_table_state(TABLE) == Ready()


class TestSchemas:
    def test_versions(self, store: Store, make_store: MakeStore) -> None:
        old, new = definition("id"), definition("id", "note")
        store.store_table_schema(new, 2**63 + 300)
        store.store_table_schema(old, 100)
        for found in (store, make_store()):
            assert found.get_table_schema(TABLE) == new
            assert found.get_table_schema(TABLE, 99) is None
            assert found.get_table_schema(TABLE, 100) == old
            assert found.get_table_schema(TABLE, 2**63 + 299) == old
            assert found.get_table_schema(TABLE, 2**63 + 300) == new
            assert found.get_table_schemas() == {TABLE: new}
            assert found.get_table_schema(OTHER) is None

    def test_the_same_again_is_no_new_version(self, store: Store, make_store: MakeStore) -> None:
        first, second = definition("id"), definition("id", "note")
        store.store_table_schema(first, 100)
        store.store_table_schema(first, 200)
        store.store_table_schema(second, 150)
        for found in (store, make_store()):
            # Had a version of 200 been written, it would hold here.
            assert found.get_table_schema(TABLE) == second

    def test_what_definitions_are_not_compared_by_is_kept(
        self, store: Store, make_store: MakeStore
    ) -> None:
        """Of a partition that left and comes back, rows may come along."""
        first = replace(definition("id"), partitions=(7, 8))
        store.store_table_schema(first, 100)
        store.store_table_schema(replace(first, partitions=(7,)), 200)
        for found in (store, make_store()):
            table = found.get_table_schema(TABLE)
            assert table is not None
            assert table.partitions == (7,)

    def test_another_one_of_the_same_position_replaces(
        self, store: Store, make_store: MakeStore
    ) -> None:
        first, second = definition("id"), definition("id", "note")
        store.store_table_schema(first, 100)
        store.store_table_schema(second, 200)
        store.store_table_schema(first, 200)
        for found in (store, make_store()):
            assert found.get_table_schema(TABLE) == first
        store.store_table_schema(second, 150)
        assert make_store().get_table_schema(TABLE) == second

    def test_loading_counts_tables(self, store: Store, make_store: MakeStore) -> None:
        second = make_store()
        items = definition("id", oid=OTHER, name="items")
        store.store_table_schemas([definition("id"), items], 100)
        store.store_table_schema(definition("id", "note"), 200)
        assert second.get_table_schemas() == {}
        assert second.load_table_schemas() == 2
        assert second.get_table_schema(OTHER) == items

    def test_tables_are_found_by_their_newest_name(self, store: Store) -> None:
        store.store_table_schema(definition("id"), 100)
        assert store.find_table("shop", "orders") == TABLE
        assert store.find_table("public", "orders") is None
        store.store_table_schema(definition("id", name="purchases"), 200)
        assert store.find_table("shop", "orders") is None
        assert store.find_table("shop", "purchases") == TABLE
        # Dropped, and made again: a lower oid may well be the younger table.
        store.store_table_schema(definition("id", oid=OTHER, name="purchases"), 300)
        assert store.find_table("shop", "purchases") == OTHER


class TestNotes:
    def test_kept_and_replaced(self, store: Store, make_store: MakeStore) -> None:
        assert store.get_notes(TABLE) == ()
        second = make_store()
        store.set_notes(TABLE, ["no index", "no key"])
        store.set_notes(TABLE, ["no index a"])
        store.set_notes(OTHER, [])
        assert second.get_notes(TABLE) == ()
        assert second.load_notes()[TABLE] == ("no index a",)
        for found in (store, make_store()):
            assert found.get_notes(TABLE) == ("no index a",)


def test_a_forgotten_pipeline_leaves_the_others(store: Store, make_store: MakeStore) -> None:
    other = make_store("warehouse")
    for found in (store, other):
        found.update_table_state(TABLE, Init())
        found.store_table_schema(definition("id"), 100)
        found.set_notes(TABLE, ["no index"])
    assert store.forget_pipeline()
    for found in (store, make_store()):
        assert (found.get_table_states(), found.get_table_schemas()) == ({}, {})
        assert found.get_notes(TABLE) == ()
    assert not store.forget_pipeline()
    other = make_store("warehouse")
    assert other.get_table_states() == {TABLE: Init()}
    assert other.get_notes(TABLE) == ("no index",)
    assert other.forget_pipeline()
    assert make_store("warehouse").get_table_states() == {}


def test_a_reload_beside_writes_loses_none(store: Store) -> None:
    store.update_table_state(TABLE, Init())
    stop = threading.Event()

    def reload() -> None:
        while not stop.is_set():
            store.load_table_states()
            store.get_table_states()

    with ThreadPoolExecutor(1) as pool:
        reloading = pool.submit(reload)
        try:
            for oid in range(1, 100):
                store.update_table_state(oid, Init())
                assert store.get_table_state(oid) == Init()
        finally:
            stop.set()
        reloading.result()
    assert len(store.get_table_states()) == 100


class TestPublication:
    STATE = PublicationState(
        {"p": PublicationOptions("16400/733", "insert, update", via_root=True)},
        {TABLE: PublishedTable("p", 4_000_000_002, "a row filter")},
    )

    def test_what_it_was_is_kept_until_it_is_another(
        self, store: Store, make_store: MakeStore
    ) -> None:
        assert store.load_publication() is None
        for state in (self.STATE, PublicationState()):
            store.set_publication(state)
            assert store.load_publication() == state
            assert make_store().load_publication() == state

    def test_it_goes_with_the_pipeline(self, store: Store, make_store: MakeStore) -> None:
        store.set_publication(self.STATE)
        assert store.forget_pipeline()
        assert make_store().load_publication() is None
