"""When another query is needed."""

from __future__ import annotations

import pytest

from penstock.pipeline import followed_tables
from penstock.pipeline.followed_tables import FollowedTables
from penstock.pipeline.table_state import Ready
from penstock.store import MemoryStore
from tests.unit.test_copy_manager import TABLE


@pytest.mark.parametrize(("merges", "needed"), [(True, False), (False, True)])
def test_a_table_that_is_copied_first_needs_no_other_query(
    monkeypatch: pytest.MonkeyPatch, *, merges: bool, needed: bool
) -> None:
    """Where rows are merged, nothing of it comes with the stream until it is copied."""
    monkeypatch.setattr(followed_tables, "_POLL_SECONDS", 0.0)
    store = MemoryStore("items")
    store.open()
    tables = FollowedTables(store, print, merges=merges, copies=True)
    tables.take_part()
    tables.enrol([TABLE], 0)
    assert tables.changed() is needed
    assert tables.is_delivered(TABLE.oid) is False
    tables.take_part()
    store.update_table_states({TABLE.oid: Ready()})
    assert tables.changed() is merges
    tables.take_part()
    assert tables.is_delivered(TABLE.oid)
