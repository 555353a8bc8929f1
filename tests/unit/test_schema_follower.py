"""What the driver does around transactions that change tables, with everything else replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.destination.memory import MemoryDestination, MemoryOptions
from penstock.model.errors import TableChanged
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Init, Ready
from penstock.model.watermarks import Watermarks
from penstock.pipeline.schema.schema_follower import SchemaFollower
from penstock.pipeline.tables.registry import TableRegistry
from penstock.store import MemoryStore
from tests.kept_tables import KeptTables
from tests.run_context import run_context
from tests.unit.test_copy_manager import TABLE
from tests.unit.test_schema_points import LoggedBuilder

LATER = replace(TABLE, name="renamed")
CHANGED_AT = 500


class Prepared(MemoryDestination, KeptTables):
    def __init__(self) -> None:
        super().__init__(MemoryOptions(), "items")
        self.prepared: list[str] = []
        self.told: list[str] = []

    def notes(self, table: int) -> Sequence[str]:
        return self.told

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self.prepared += [table.name for table in definitions]


class Followed:
    """One table, which was renamed at ``CHANGED_AT``; the stream stands at ``at``."""

    def __init__(self, log: str, *, at: int, copies: bool = True) -> None:
        self.store = MemoryStore("items")
        self.store.open()
        self.tables = TableRegistry(self.store, merges=True, copies=copies)
        self.tables.enrol([TABLE], 0)
        self.store.update_table_state(TABLE.oid, Ready())
        self.store.store_table_schemas([LATER], CHANGED_AT)
        self.tables.take_part()
        self.destination = Prepared()
        self.heeded: list[object] = []
        frontier = Frontier(at, at + 1)
        committer: Any = SimpleNamespace(
            standing=Watermarks(frontier),
            lock=nullcontext(),
            read_up_to=frontier,
            commit_sections=self._commit_sections,
            heed_writer=self.heeded.append,
        )
        self.committer = committer
        session: Any = SimpleNamespace(
            definitions_of=lambda _: {TABLE.oid: LATER},
            describer=lambda: lambda _document: {TABLE.oid: TABLE},
            tables_come_in_stream=lambda: False,
            acknowledge=lambda _versions: None,
        )
        context = run_context(
            "items", log, store=self.store, destination=self.destination, session=session
        )
        subscribed: Any = SimpleNamespace(look_soon=lambda: None)
        self.follower = SchemaFollower(context, self.tables, committer, subscribed)

    def _commit_sections(self, _sections: object, frontier: Frontier, _job: object) -> None:
        self.committer.read_up_to = frontier


@pytest.mark.parametrize(("at", "name"), [(CHANGED_AT, "renamed"), (CHANGED_AT - 1, "items")])
def test_tables_whose_change_got_no_answer_are_prepared_where_the_destination_stands(
    tmp_path: Any, at: int, name: str
) -> None:
    followed = Followed(str(tmp_path), at=at)
    followed.tables.to_prepare([TABLE.oid])
    assert followed.follower.follow(lambda: True)
    assert followed.destination.prepared == [name]
    assert followed.follower.follow(lambda: True)
    assert followed.destination.prepared == [name], "once is enough"


def test_rows_that_the_catalogue_does_not_explain_have_their_table_copied_anew(
    tmp_path: Any,
) -> None:
    followed = Followed(str(tmp_path), at=600)
    seen = TableChanged("it has changed", table=TABLE.oid, commit_lsn=600)
    followed.follower.notice(seen)
    assert followed.store.get_table_state(TABLE.oid) == Init()
    # Where tables are not copied, a person has to look.
    followed = Followed(str(tmp_path), at=600, copies=False)
    with pytest.raises(TableChanged):
        followed.follower.notice(seen)
    assert followed.store.get_table_state(TABLE.oid) == Ready()


@pytest.mark.parametrize(("is_rewrite", "wanted"), [(True, "resync"), (False, None)])
def test_a_table_that_was_rewritten_is_copied_anew(
    tmp_path: Any, is_rewrite: bool, wanted: str | None
) -> None:
    """No change of a row tells of what its rows hold after that."""
    log = LoggedBuilder(ChangeLog(str(tmp_path)))
    commit_lsn = log.commit(log.change(TABLE.oid, rewrite=is_rewrite))
    followed = Followed(str(tmp_path), at=commit_lsn - 1)
    assert followed.follower.follow(lambda: True)
    assert followed.committer.read_up_to.commit_lsn == commit_lsn
    assert followed.store.get_wish(TABLE.oid) == wanted


def test_partitions_that_were_rewritten_have_their_root_copied_anew(tmp_path: Any) -> None:
    """The server tells of each that is rewritten, and their root is none."""
    log = LoggedBuilder(ChangeLog(str(tmp_path)))
    commit_lsn = log.commit(log.change(70, rewrite=True), log.change(80, rewrite=True))
    followed = Followed(str(tmp_path), at=commit_lsn - 1)
    followed.store.store_table_schemas([replace(LATER, partitions=(70, 80))], CHANGED_AT)
    assert followed.follower.follow(lambda: True)
    assert followed.store.get_wish(TABLE.oid) == "resync"


@pytest.mark.parametrize(
    ("seen", "name", "wanted"),
    [
        ([[4, 0], [6, 4, 0]], "renamed", "resync"),
        ([[4, 5], [6, 4, 5]], "items", None),
        # Of a log that was made anew since.
        ([[60], [61, 60]], "items", None),
    ],
)
def test_who_did_not_see_the_last_change_of_a_table_does_not_undo_it(
    tmp_path: Any, seen: list[list[int]], name: str, wanted: str | None
) -> None:
    """Two transactions may change one at once: an enum's value needs no lock of its tables."""
    log = LoggedBuilder(ChangeLog(str(tmp_path)))

    def change(version: int, seen: list[int]) -> Callable[[], None]:
        told = {"table": TABLE.oid, "document": {}, "seen": seen}
        return lambda: log.sealed({"tag": "ALTER TYPE", "version": version, "tables": [told]})

    commit_lsn = log.commit(change(4, seen[0]), change(6, seen[1]))
    followed = Followed(str(tmp_path), at=commit_lsn - 1)
    followed.store.store_table_schemas([replace(LATER, version=5)], CHANGED_AT)
    assert followed.follower.follow(lambda: True)
    table = followed.store.get_table_schema(TABLE.oid)
    assert table is not None
    assert (table.name, table.version) == (name, 6)
    assert followed.store.get_wish(TABLE.oid) == wanted


def test_notes_of_an_earlier_run_stay(tmp_path: Any) -> None:
    """The destination knows only what it could not make since it was opened."""
    log = LoggedBuilder(ChangeLog(str(tmp_path)))
    commit_lsn = log.commit(log.change(TABLE.oid, rewrite=False))
    followed = Followed(str(tmp_path), at=commit_lsn - 1)
    followed.store.set_notes(TABLE.oid, ["no index a"])
    followed.destination.told = ["no index b"]
    assert followed.follower.follow(lambda: True)
    assert followed.store.get_notes(TABLE.oid) == ("no index a", "no index b")
