"""Which tables are admitted to be copied."""

from __future__ import annotations

from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.pipeline.copy.copy_admission import CopyAdmission
from penstock.pipeline.copy.copy_state import CopyState
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.tables.followed_tables import FollowedTables
from penstock.source.postgres.snapshot.chunk import Chunk, CopyPlan
from penstock.store import MemoryStore
from tests.unit.test_copy_manager import TABLE, Positions, Snapshots


def test_a_copy_begins_when_no_chunk_of_the_one_before_is_under_way() -> None:
    """Its rows would come into a target that has been emptied."""
    store = MemoryStore("items")
    store.open()
    tables = FollowedTables(store, print, merges=False, copies=True)
    tables.enrol([TABLE], 0)
    tables.take_part()
    store.begin_claims("we")
    positions, snapshots = Positions(), Snapshots()
    state = CopyState(store, tables, positions, 10, "we", print)
    chunk = Chunk(7, 0, 7, "public", "items", 1, 0, None, 10)
    admission = CopyAdmission(
        state,
        CopyTarget(DiscardDestination(DiscardOptions(), "items")),
        store,
        tables,
        positions,
        snapshots,
        lambda _tables: {7: TABLE},
        lambda _tables: {7: CopyPlan(7, ("id",), None, (chunk,))},
        "we",
        one_snapshot=False,
    )
    admission.admit()
    unit = state.queue.take()
    assert unit is not None
    state.give_up([7])
    admission.admit()
    assert (snapshots.taken, state.queue.take()) == (1, None)
    state.queue.done(unit)
    admission.admit()
    assert (snapshots.taken, state.queue.take()) == (2, unit)
