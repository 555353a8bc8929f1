"""Tables that come and leave, with everything around replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from penstock.destination.memory import MemoryDestination, MemoryOptions
from penstock.model.errors import BatchAgain, DestinationUnavailable
from penstock.model.lsn import Frontier
from penstock.model.publication_state import PublicationOptions, PublicationState, PublishedTable
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_state import DataSync, Errored, Init, Ready
from penstock.model.watermarks import Watermarks
from penstock.pipeline.tables import subscribed_tables
from penstock.pipeline.tables.registry import TableRegistry
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.source.contract import Reconciled, Subscription
from penstock.store import MemoryStore
from tests.kept_tables import KeptTables
from tests.run_context import run_context
from tests.unit.test_copy_manager import TABLE, Positions

WAL = 1000
AGAIN = replace(TABLE, oid=8)


class Emptied(MemoryDestination, KeptTables):
    """Remembers what it was told to empty and to drop."""

    def __init__(self) -> None:
        super().__init__(MemoryOptions(), "items")
        self.emptied: list[str] = []
        self.dropped: list[int] = []
        self.let_go_of: list[int] = []
        self.prepared: list[TableDefinition] = []
        self.lock = Lock()
        self.is_away = False
        self.is_busy = False

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self.prepared += definitions

    def truncate_table(self, table: TableDefinition) -> None:
        assert self.lock.locked(), "nobody commits meanwhile"
        if self.is_away:
            raise DestinationUnavailable("away")
        if self.is_busy:
            raise BatchAgain("another transaction was faster")
        self.emptied.append(table.name)


class Stream(Positions):
    """Where the stream is, and where it is to get."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.read_up_to = Frontier(0, WAL)
        self.wanted = 0

    def heed_source(self) -> bool:
        return True

    def want(self, lsn: int) -> None:
        self.wanted = lsn

    def held(self) -> Watermarks:
        return Watermarks(self.read_up_to)


class Look:
    """Lets a look at the publication find what is ``published``, as often as it is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, copy: bool, waits: bool = False) -> None:
        """``waits``: the table is not copied yet."""
        self.published: dict[int, TableName] = {}
        self.added: dict[int, TableName] = {}
        self.withdrawn: dict[int, str] = {}
        self.state = PublicationState()
        self.columns: dict[int, dict[str, int]] = {}
        monkeypatch.setattr(subscribed_tables, "_LOOK_SECONDS", 0.0)
        self.session = SimpleNamespace(
            reconcile=lambda _rules: Reconciled(
                self.published, self.added, {}, {}, {}, self.withdrawn, {}, self.state, self.columns
            ),
            leaf_files=lambda _tables: {},
            position=lambda: WAL,
            definitions=lambda _names: [AGAIN],
            published=lambda: {TABLE.oid},
        )
        self.store = MemoryStore("items")
        self.store.open()
        self.tables = TableRegistry(self.store, merges=False, copies=waits)
        self.tables.enrol([TABLE], 0)
        self.destination = Emptied()
        self.stream = Stream()
        positions: Any = self.stream
        tables = {"include": ["*"], "on_remove": "truncate"}
        context = run_context(
            "items",
            store=self.store,
            destination=self.destination,
            session=self.session,
            source_keys={"tables": tables, "copy": copy},
        )
        self.stream.lock = self.destination.lock
        self.subscribed = SubscribedTables(context, self.tables, positions)

    def __call__(self) -> tuple[list[str], int]:
        """What was emptied by now, and how many tables are known."""
        self.subscribed.look_soon()
        self.subscribed.reconcile()
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


def test_a_table_leaves_a_destination_that_was_away_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would keep what was to go, and nobody would come again."""
    look = Look(monkeypatch, copy=True)
    look.destination.is_away = True
    with pytest.raises(DestinationUnavailable):
        look()
    look.destination.is_away = False
    assert look() == (["items"], 0)


def test_a_table_leaves_a_destination_where_somebody_was_faster_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = Look(monkeypatch, copy=True)
    look.destination.is_busy = True
    assert look() == ([], 1)
    look.destination.is_busy = False
    assert look() == (["items"], 0)


def test_a_destination_that_does_not_know_where_it_stands_gets_tables_as_they_were_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change that the store knows, and that was not delivered before a crash, is to come."""
    look = Look(monkeypatch, copy=False)
    renamed = replace(TABLE, name="goods")
    look.store.store_table_schemas([renamed], WAL)
    look.session.definitions = lambda _names: [renamed]
    look.stream.read_up_to = Frontier(0, WAL)
    subscription = Subscription(("p",), "", "", 1, (TableName("public", "goods"),), ())
    look.subscribed.enrol(subscription, Frontier(0, 1))
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
    assert look.destination.let_go_of == ([] if merges else [TABLE.oid]), "or the name is not free"
    look()
    assert list(look.store.get_table_states()) == [AGAIN.oid]
    assert look.subscribed.is_settled


def test_a_table_that_had_to_leave_the_publication_waits_and_is_copied_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = Look(monkeypatch, copy=True)
    look.store.update_table_states({TABLE.oid: Ready()})
    look.tables.take_part()
    look.withdrawn = {TABLE.oid: "its rows cannot be identified"}
    assert look() == ([], 1), "it is not removed"
    state = look.store.get_table_state(TABLE.oid)
    assert isinstance(state, Errored)
    assert "its rows cannot be identified" in state.reason
    assert look() == ([], 1)
    assert look.store.get_wish(TABLE.oid) is None
    # Somebody gave it another identity.
    look.withdrawn = {}
    look.published = look.added = {TABLE.oid: TableName("public", "items")}
    look.subscribed.look_soon()
    assert look() == ([], 1)
    assert look.store.get_wish(TABLE.oid) == "resync"


def test_the_copy_of_a_table_that_had_to_leave_the_publication_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = Look(monkeypatch, copy=True)
    look.store.update_table_states({TABLE.oid: Init()})
    look.withdrawn = {TABLE.oid: "its rows cannot be identified"}
    assert look() == ([], 1)
    assert look.store.get_wish(TABLE.oid) == "cancelled"


def published(entry: int, *, publication: str = "p") -> PublicationState:
    return PublicationState({}, {TABLE.oid: PublishedTable(publication, entry)})


@pytest.mark.parametrize("copy", [True, False])
def test_a_table_that_left_the_publication_by_hand_and_came_back(
    monkeypatch: pytest.MonkeyPatch, *, copy: bool
) -> None:
    look = Look(monkeypatch, copy=copy, waits=copy)
    look.published, look.state = {TABLE.oid: TableName("public", "items")}, published(1)
    if copy:
        look.store.update_table_state(TABLE.oid, DataSync())
    look()
    assert look.store.get_wish(TABLE.oid) is None
    assert look.store.load_publication() == published(1)
    look.state = published(2)
    look()
    assert look.store.get_wish(TABLE.oid) == ("resync" if copy else None)
    (note,) = look.store.get_notes(TABLE.oid)
    assert note.startswith("changes were lost: it left publication p and came back; ")
    assert note.endswith("copied anew" if copy else "so it lacks them")
    assert look.store.load_publication() == published(2)
    look()
    assert len(look.store.get_notes(TABLE.oid)) == 1


def test_a_loss_that_a_crash_kept_from_being_noted_is_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = Look(monkeypatch, copy=True, waits=True)
    look.published, look.state = {TABLE.oid: TableName("public", "items")}, published(1)
    look.store.update_table_state(TABLE.oid, DataSync())
    look()
    look.state = published(2)
    with monkeypatch.context() as patch:
        patch.setattr(look.store, "set_wishes", _die)
        with pytest.raises(RuntimeError):
            look()
    assert look.store.load_publication() == published(1)
    look()
    assert look.store.get_wish(TABLE.oid) == "resync"


def _die(*_: object) -> None:
    raise RuntimeError("killed")


def test_a_table_that_waits_for_its_copy_has_lost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(monkeypatch, copy=True, waits=True)
    look.published, look.state = {TABLE.oid: TableName("public", "items")}, published(1)
    look()
    look.state = published(2)
    look()
    assert look.store.get_table_state(TABLE.oid) == Init()
    assert look.store.get_wish(TABLE.oid) is None
    assert look.store.get_notes(TABLE.oid) == ()


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_table_whose_copy_was_given_up_is_copied_once_another_driver_has_published_it_again(
    monkeypatch: pytest.MonkeyPatch, *, by_hand: bool
) -> None:
    """That of another destination, or the one before this, which died then. What a person has
    cancelled stays so as long as the table stays.
    """
    look = Look(monkeypatch, copy=True, waits=True)
    look.published, look.state = {TABLE.oid: TableName("public", "items")}, published(1)
    look()
    if by_hand:
        look.store.set_wish(TABLE.oid, "cancelled")
    else:
        look.published, look.state = {}, PublicationState()
        look.withdrawn = {TABLE.oid: "its rows cannot be identified"}
    look()
    assert look.store.get_wish(TABLE.oid) == "cancelled"
    look.withdrawn = {}
    altered = PublicationOptions("2", "insert", via_root=True)
    look.published = {TABLE.oid: TableName("public", "items")}
    look.state = replace(published(1 if by_hand else 2), publications={"p": altered})
    look()
    assert look.store.get_wish(TABLE.oid) == ("cancelled" if by_hand else "resync")


def test_a_column_that_was_dropped_and_added_again_under_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream may still tell of it: until it has passed that point, nothing is said."""
    look = Look(monkeypatch, copy=False)
    look.published, look.state = {TABLE.oid: TableName("public", "items")}, published(1)
    look.columns = {TABLE.oid: {"id": 1}}
    look.stream.read_up_to = Frontier(0, WAL - 1)
    look.tables.take_part()
    look()
    look.columns = {TABLE.oid: {"id": 2}}
    look()
    assert look.store.get_notes(TABLE.oid) == ()
    assert look.stream.wanted == WAL
    look.stream.read_up_to = Frontier(0, WAL)
    look()
    notes = look.store.get_notes(TABLE.oid)
    assert [note.partition(";")[0] for note in notes] == [
        "columns under old names are others now: id"
    ]
