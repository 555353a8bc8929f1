"""Tables that come and leave, with everything around replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import pytest

from penstock.config.models import PipelineConfig
from penstock.destination.memory import MemoryDestination, MemoryOptions
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks
from penstock.pipeline.tables import subscribed_tables
from penstock.pipeline.tables.followed_tables import FollowedTables
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.source.postgres.catalogue.tables import TableName
from penstock.source.postgres.subscription.publications import Membership
from penstock.source.postgres.subscription.reconcile import Reconciled
from penstock.source.postgres.subscription.subscription import Subscription
from penstock.store import MemoryStore
from tests.kept_tables import KeptTables
from tests.unit.test_copy_manager import TABLE, Positions

WAL = 1000
AGAIN = replace(TABLE, oid=8)


class Emptied(MemoryDestination, KeptTables):
    """Remembers what it was told to empty and to drop."""

    def __init__(self) -> None:
        super().__init__(MemoryOptions(), "items")
        self.emptied: list[str] = []
        self.dropped: list[int] = []
        self.prepared: list[TableDefinition] = []

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self.prepared += definitions

    def truncate_table(self, table: TableDefinition) -> None:
        self.emptied.append(table.name)


class Stream(Positions):
    """Where the stream is, and where it is to get."""

    def __init__(self) -> None:
        self.lock = nullcontext()
        self.read_up_to = Frontier(0, WAL)
        self.wanted = 0

    def want(self, lsn: int) -> None:
        self.wanted = lsn

    def held(self) -> Watermarks:
        return Watermarks(self.read_up_to)


class Look:
    """Lets a look at the publication find what is ``published``, as often as it is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, copy: bool) -> None:
        self.published: dict[int, TableName] = {}
        monkeypatch.setattr(
            subscribed_tables,
            "reconcile_publication",
            lambda *_: Reconciled(self.published, {}, {}, {}, {}),
        )
        monkeypatch.setattr(subscribed_tables, "_LOOK_SECONDS", 0.0)
        monkeypatch.setattr(subscribed_tables, "current_wal_lsn", lambda _conn: WAL)
        monkeypatch.setattr(subscribed_tables, "read_definitions", lambda *_: [AGAIN])
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
        self.stream = Stream()
        positions: Any = self.stream
        self.subscribed = SubscribedTables(
            config, self.destination, self.store, self.tables, positions, print
        )

    def __call__(self) -> tuple[list[str], int]:
        """What was emptied by now, and how many tables are known."""
        connection: Any = None
        self.subscribed.reconcile(connection)
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


def test_a_destination_that_does_not_know_where_it_stands_gets_tables_as_they_were_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change that the store knows, and that was not delivered before a crash, is to come."""
    look = Look(monkeypatch, copy=False)
    renamed = replace(TABLE, name="goods")
    look.store.store_table_schemas([renamed], WAL)
    monkeypatch.setattr(subscribed_tables, "read_definitions", lambda *_: [renamed])
    monkeypatch.setattr(
        subscribed_tables, "read_membership", lambda *_: Membership(("p",), {TABLE.oid: "p"}, {})
    )
    look.stream.read_up_to = Frontier(0, WAL)
    connection: Any = None
    subscription = Subscription(("p",), "", "", 1, (TableName("public", "goods"),), ())
    look.subscribed.enrol(connection, subscription)
    assert look.destination.prepared == [TABLE]


def test_before_the_first_query_it_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Look(monkeypatch, copy=True)() == (["items"], 0)


def test_what_was_written_before_a_table_went_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(monkeypatch, copy=True)
    look.stream.read_up_to = Frontier(0, WAL - 1)
    look.tables.take_part()
    look()
    look.tables.take_part()
    assert look.tables.is_delivered(TABLE.oid)
    assert look.stream.wanted == WAL, "capture says when it is there"
    assert not look.subscribed.is_settled
    look.stream.read_up_to = Frontier(0, WAL)
    look()
    look.tables.take_part()
    assert look() == (["items"], 0)
    assert look.subscribed.is_settled


@pytest.mark.parametrize("merges", [True, False])
def test_a_table_under_the_name_of_one_that_is_gone_takes_its_place(
    monkeypatch: pytest.MonkeyPatch, *, merges: bool
) -> None:
    look = Look(monkeypatch, copy=True)
    mode: Literal["merge", "append"] = "merge" if merges else "append"
    look.destination.capabilities = replace(look.destination.capabilities, mode=mode)
    look.published = {AGAIN.oid: TableName("public", "items")}
    look.tables.take_part()
    look()
    assert list(look.store.get_table_states()) == [TABLE.oid], "the name is not free yet"
    assert not look.subscribed.is_settled
    look.tables.take_part()
    look()
    assert look.destination.dropped == ([TABLE.oid] if merges else [])
    look()
    assert list(look.store.get_table_states()) == [AGAIN.oid]
    assert look.subscribed.is_settled
