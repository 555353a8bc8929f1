"""Which tables are admitted to be copied."""

from __future__ import annotations

from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.pipeline.copy.copy_admission import CopyAdmission
from penstock.pipeline.copy.copy_state import CopyState
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.copy_work import CopiesEnd, CopyWork
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.copy_plan import Chunk
from penstock.store import MemoryStore
from tests.unit.test_copy_manager import SETTINGS, TABLE, Copies, Finished, Positions


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
