"""Which tables are admitted to be copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from penstock.config.transform_config import TransformConfig
from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.model.errors import SlotError, StoreUnavailable
from penstock.model.lsn import Frontier
from penstock.model.table_state import Errored
from penstock.pipeline.copy.copy_admission import CopyAdmission
from penstock.pipeline.copy.copy_state import CopyState
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.copy_work import CopiesEnd, CopyWork
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.copy_plan import Chunk
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot
from penstock.store import MemoryStore
from penstock.transform.transform import Transform
from tests.unit.test_copy_manager import SETTINGS, TABLE, Copies, Finished, Positions


def test_a_copy_does_not_let_out_what_a_rule_covered() -> None:
    """A column was renamed while nothing ran: the copy comes before the stream tells of it."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=False, copies=True)
    old = replace(TABLE, columns=tuple(replace(c, name="email") for c in TABLE.columns))
    tables.enrol([old], 0)
    tables.take_part()
    store.begin_claims("we")
    positions = Positions()
    state = CopyState(store, tables, positions, SETTINGS)
    source = Copies((Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),))
    target = CopyTarget(DiscardDestination(DiscardOptions(), "items"))
    rule = {"table": "*.*", "columns": {"*mail*": "null"}, "keep": ["*"]}
    transform = Transform(TransformConfig.model_validate({"rules": [rule]}))
    work = CopyWork(source, target, Finished(), CopiesEnd(), transform=transform)
    CopyAdmission(state, store, tables, positions, work, SETTINGS).admit()
    assert state.queue.take() is None
    found = store.get_table_states()[7]
    assert isinstance(found, Errored)
    assert "which was public.items.email" in found.reason


def test_a_copy_begins_when_no_chunk_of_the_one_before_is_under_way() -> None:
    """Its rows would come into a target that has been emptied."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=False, copies=True)
    tables.enrol([TABLE], 0)
    tables.take_part()
    store.begin_claims("we")
    positions = Positions()
    state = CopyState(store, tables, positions, SETTINGS)
    source = Copies((Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),))
    target = CopyTarget(DiscardDestination(DiscardOptions(), "items"))
    work = CopyWork(source, target, Finished(), CopiesEnd())
    admission = CopyAdmission(state, store, tables, positions, work, SETTINGS)
    snapshots = source.snapshots
    admission.admit()
    unit = state.queue.take()
    assert unit is not None
    state.give_up([7])
    admission.admit()
    assert (snapshots.taken, state.queue.take()) == (1, None)
    state.queue.done(unit)
    admission.admit()
    assert (snapshots.taken, state.queue.take()) == (2, unit)


class Placed(Positions):
    """Remembers for which tables the log is kept."""

    def __init__(self) -> None:
        self.tables: set[int] = set()

    def place(self, tables: Mapping[int, Frontier]) -> None:
        self.tables |= tables.keys()

    def free(self, tables: Collection[int]) -> None:
        self.tables -= {*tables}


def test_of_a_copy_that_could_not_begin_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next try may never come: who cancels the table, or takes it away, would wait for ever."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=True, copies=True)
    tables.enrol([TABLE], 0)
    tables.take_part()
    store.begin_claims("we")
    positions = Placed()
    state = CopyState(store, tables, positions, SETTINGS)
    source = Copies((Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),))
    destination = DiscardDestination(DiscardOptions(), "items")
    destination.capabilities = replace(destination.capabilities, mode="merge")
    work = CopyWork(source, CopyTarget(destination), Finished(), CopiesEnd())
    admission = CopyAdmission(state, store, tables, positions, work, SETTINGS)

    def waits() -> tuple[int, HeldSnapshot]:
        assert positions.tables == {7}, "from before the snapshot on"
        raise SlotError("the snapshot waits for open transactions")

    with monkeypatch.context() as patched:
        patched.setattr(source.snapshots, "take", waits)
        with pytest.raises(SlotError):
            admission.admit()
    assert (positions.tables, store.load_claims()) == (set(), {})
    admission.admit()
    assert (positions.tables, store.load_claims()) == ({7}, {7: "we"})


@pytest.mark.parametrize("step", ["start_copies", "update_table_states"])
def test_a_snapshot_whose_copies_could_not_be_noted_is_released(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It would hold back the source's clean-up until the driver is started again."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=False, copies=True)
    tables.enrol([TABLE], 0)
    tables.take_part()
    store.begin_claims("we")
    state = CopyState(store, tables, Positions(), SETTINGS)
    source = Copies((Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),))
    target = CopyTarget(DiscardDestination(DiscardOptions(), "items"))
    work = CopyWork(source, target, Finished(), CopiesEnd())
    admission = CopyAdmission(state, store, tables, Positions(), work, SETTINGS)

    def lost(*_: object) -> None:
        raise StoreUnavailable("the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(store, step, lost)
        with pytest.raises(StoreUnavailable):
            admission.admit()
    # The manager releases a reading that has no tables.
    unused = {number for number, reading in state.readings.items() if not reading.tables}
    assert source.snapshots.released | unused == {1}
    admission.admit()
    assert state.readings[2].tables == {7}


@pytest.mark.parametrize("step", ["start_copies", "copy_snapshots"])
def test_a_snapshot_that_no_copy_was_noted_for_is_let_go(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It would keep the source from cleaning up for as long as the driver lives."""
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=False, copies=True)
    tables.enrol([TABLE], 0)
    tables.take_part()
    store.begin_claims("we")
    positions = Positions()
    state = CopyState(store, tables, positions, SETTINGS)
    source = Copies((Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),))
    target = CopyTarget(DiscardDestination(DiscardOptions(), "items"))
    work = CopyWork(source, target, Finished(), CopiesEnd())
    admission = CopyAdmission(state, store, tables, positions, work, SETTINGS)

    def away(*_: object) -> None:
        raise StoreUnavailable("as the test wants it", remedy="none")

    if step == "copy_snapshots":
        admission.admit()
        state.readings.clear()
    with monkeypatch.context() as patch:
        patch.setattr(store, step, away)
        with pytest.raises(StoreUnavailable):
            admission.admit() if step == "start_copies" else admission.adopt()
    assert source.snapshots.released == {source.snapshots.taken}
    assert state.readings == {}
