"""When another query is needed, and from where on tables wait."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.model.errors import TableRefused
from penstock.model.lsn import Frontier
from penstock.model.table_state import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    ManualRetry,
    Ready,
    RetryPolicy,
    SyncDone,
    SyncWait,
    TableState,
    TimedRetry,
)
from penstock.pipeline.tables import registry as followed_tables
from penstock.pipeline.tables.registry import StreamPart, TableRegistry
from penstock.source.copy_plan import CopyPlan
from penstock.store import MemoryStore
from penstock.store.memory import PipelineRecords
from tests.unit.test_copy_manager import TABLE


@pytest.mark.parametrize(("merges", "needed"), [(True, False), (False, True)])
def test_a_table_that_is_copied_first_needs_no_other_query(
    monkeypatch: pytest.MonkeyPatch, *, merges: bool, needed: bool
) -> None:
    """Where rows are merged, nothing of it comes with the stream until it is copied."""
    monkeypatch.setattr(followed_tables, "_POLL_SECONDS", 0.0)
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=merges, copies=True)
    tables.take_part()
    tables.enrol([TABLE], 0)
    assert tables.changed() is needed
    assert tables.is_delivered(TABLE.oid) is False
    tables.take_part()
    store.update_table_states({TABLE.oid: Ready()})
    assert tables.changed() is merges
    tables.take_part()
    assert tables.is_delivered(TABLE.oid)


def _refused(*states: TableState) -> StreamPart:
    """A table that was copied at LSN 100, went through these states, and was refused twice."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=True, copies=True)
    tables.enrol([TABLE], 0)
    store.start_copies({TABLE.oid: CopyPlan(TABLE.oid, (), None, ())}, 100)
    for state in states:
        store.update_table_state(TABLE.oid, state)
    for _ in range(2):
        tables.refuse(TableRefused("no", table=TABLE.oid))
    return tables.take_part()


def test_a_table_that_is_refused_waits_where_the_stream_had_brought_it() -> None:
    """Not where its copy began, of which the log knows nothing any more."""
    path = (DataSync(), FinishedCopy(), SyncWait(), Catchup(200), SyncDone(200), Ready())
    for length in (5, 6):
        part = _refused(*path[:length])
        assert part.set_aside == {TABLE.oid}
        assert part.waiting == {TABLE.oid: None}


def test_a_table_that_is_refused_in_its_copy_waits_where_that_began() -> None:
    for path in ((DataSync(),), (DataSync(), FinishedCopy(), SyncWait(), Catchup(200))):
        assert _refused(*path).waiting == {TABLE.oid: Frontier.before(100)}


def test_what_passed_long_ago_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadlock now and then is not what a person has to decide about."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=True, copies=True)
    tables.enrol([TABLE], 0)
    now = 0.0
    monkeypatch.setattr("penstock.pipeline.tables.registry.time.monotonic", lambda: now)

    def refused(hours: float) -> RetryPolicy:
        nonlocal now
        now += hours * 3600
        tables.refuse(TableRefused("no", table=TABLE.oid, may_pass=True))
        state = store.get_table_state(TABLE.oid)
        assert isinstance(state, Errored)
        return state.retry

    assert all(isinstance(refused(2.0), TimedRetry) for _ in range(20))
    policies = [refused(0.2) for _ in range(20)]
    assert isinstance(policies[0], TimedRetry)
    assert isinstance(policies[-1], ManualRetry)


def test_nothing_waits_for_a_table_that_leaves() -> None:
    """It was copied long ago: of where that began the log knows nothing any more."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=True, copies=True)
    tables.enrol([TABLE], 0)
    store.start_copies({TABLE.oid: CopyPlan(TABLE.oid, (), None, ())}, 100)
    store.update_table_states({TABLE.oid: Ready()})
    tables.leave([TABLE.oid])
    part = tables.take_part()
    assert part.set_aside == {TABLE.oid}
    assert part.waiting == {}


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_refusal_of_a_table_that_is_copied_anew_needs_nobody(*, is_given_up: bool) -> None:
    """Be it that the copying thread has heard of the wish already, or not yet."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=True, copies=True)
    tables.enrol([TABLE], 0)
    store.update_table_states({TABLE.oid: Ready()})
    tables.take_part()
    store.set_wishes({TABLE.oid: "resync"})
    if is_given_up:
        store.update_table_states({TABLE.oid: Init()})
        store.fulfil_wishes({TABLE.oid: "resync"})
    tables.refuse_delivery(TableRefused("duplicate key", table=TABLE.oid))
    assert store.get_table_state(TABLE.oid) == Init()
    assert tables.take_part().set_aside == {TABLE.oid}, "the next query goes on without it"


def test_a_refusal_of_any_other_table_sets_it_aside() -> None:
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=True, copies=True)
    tables.enrol([TABLE], 0)
    store.update_table_states({TABLE.oid: Ready()})
    tables.refuse_delivery(TableRefused("duplicate key", table=TABLE.oid))
    assert isinstance(store.get_table_state(TABLE.oid), Errored)


def test_a_table_that_is_given_up_as_it_joins_is_copied_anew() -> None:
    """By the thread that copies, just when the main one finds that it stands where all others do:
    what was wrong with its rows would stay wrong.
    """

    class GivenUp(MemoryStore):
        def get_table_states(self) -> dict[int, TableState]:
            found = super().get_table_states()
            if isinstance(found.get(TABLE.oid), SyncDone):
                self.update_table_state(TABLE.oid, Init())
            return found

    store = GivenUp("items")
    store.open()
    tables = TableRegistry(store, merges=True, copies=True)
    tables.enrol([TABLE], 0)
    for state in (DataSync(), FinishedCopy(), SyncWait(), Catchup(100), SyncDone(100)):
        store.update_table_state(TABLE.oid, state)
    tables.joined({})
    assert store.get_table_state(TABLE.oid) == Init()


def test_a_table_that_a_person_retries_as_its_time_comes_ends_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`penstock tables retry` was quicker, by the blink of an eye: another process, and store."""
    monkeypatch.setattr(followed_tables, "_POLL_SECONDS", 0.0)
    records: dict[str, PipelineRecords] = {}

    class Late(MemoryStore):
        def retry_table(self, table: int) -> TableState:
            with MemoryStore("items", records) as other:
                other.retry_table(table)
            return super().retry_table(table)

    store = Late("items", records)
    store.open()
    tables = TableRegistry(store, merges=False, copies=True)
    tables.enrol([TABLE], 0)
    store.update_table_state(TABLE.oid, Ready())
    tables.take_part()
    due = TimedRetry(1, datetime.now(UTC))
    store.update_table_state(TABLE.oid, Errored("no", retry=due, delivered=True))
    tables.take_part()
    assert tables.changed()
    assert store.get_table_state(TABLE.oid) == Ready()
