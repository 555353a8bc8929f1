"""Tables that leave, with everything around replaced."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.models import PipelineConfig
from penstock.destination.memory import MemoryDestination, MemoryOptions
from penstock.pipeline import subscribed_tables
from penstock.pipeline.followed_tables import FollowedTables
from penstock.pipeline.subscribed_tables import SubscribedTables
from penstock.postgres.reconcile import Reconciled
from penstock.store import MemoryStore
from penstock.table_definition import TableDefinition
from tests.unit.test_copy_manager import TABLE, Positions


class Emptied(MemoryDestination):
    """Remembers what it was told to empty."""

    def __init__(self) -> None:
        super().__init__(MemoryOptions(), "items")
        self.emptied: list[str] = []

    def truncate_table(self, table: TableDefinition) -> None:
        self.emptied.append(table.name)


class Look:
    """Lets a look at the publication find no table, as often as it is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, copy: bool) -> None:
        found = Reconciled({}, {}, {}, {}, {})
        monkeypatch.setattr(subscribed_tables, "reconcile_publication", lambda *_: found)
        monkeypatch.setattr(subscribed_tables, "_LOOK_SECONDS", 0.0)
        self.store = MemoryStore("items")
        self.store.open()
        self.tables = FollowedTables(self.store, print, merges=False, copies=False)
        self.tables.enrol([TABLE], 0)
        self.destination = Emptied()
        config = PipelineConfig.model_validate(
            {
                "name": "items",
                "source": {
                    "url": "postgresql://nobody@localhost/nowhere",
                    "tables": {"include": ["*"], "on_remove": "truncate"},
                    "copy": copy,
                },
                "change_log": {"path": "nowhere"},
                "destination": {"type": "discard"},
            }
        )
        positions: Any = Positions()
        self._subscribed = SubscribedTables(
            config, self.destination, self.store, self.tables, positions, print
        )

    def __call__(self) -> tuple[list[str], int]:
        """What was emptied by now, and how many tables are known."""
        connection: Any = None
        self._subscribed.reconcile(connection)
        return self.destination.emptied, len(self.store.get_table_states())


@pytest.mark.parametrize("copy", [True, False])
def test_a_table_leaves_the_stream_before_it_is_emptied(
    monkeypatch: pytest.MonkeyPatch, *, copy: bool
) -> None:
    """A batch that is under way would not find its rows any more."""
    look = Look(monkeypatch, copy=copy)
    look.tables.take_part()
    assert look.tables.is_delivered(TABLE.oid)
    assert look() == ([], 1)
    assert look() == ([], 1)
    # The next query.
    look.tables.take_part()
    assert not look.tables.is_delivered(TABLE.oid)
    assert look() == (["items"], 0)


def test_before_the_first_query_it_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Look(monkeypatch, copy=True)() == (["items"], 0)
