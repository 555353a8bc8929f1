"""What the driver does around transactions that change tables, with everything else replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.destination.memory import MemoryDestination, MemoryOptions
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.written import JobResult
from penstock.model.errors import TableChanged
from penstock.model.lsn import Frontier
from penstock.model.schema_policy import SchemaPolicy
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Init, Ready
from penstock.pipeline.run.standing import Standing
from penstock.pipeline.schema import schema_follower
from penstock.pipeline.schema.schema_follower import SchemaFollower
from penstock.pipeline.tables.followed_tables import FollowedTables
from penstock.store import MemoryStore
from tests.unit.test_copy_manager import TABLE
from tests.unit.test_schema_points import LoggedBuilder

LATER = replace(TABLE, name="renamed")
CHANGED_AT = 500


class Prepared(MemoryDestination):
    def __init__(self) -> None:
        super().__init__(MemoryOptions(), "items")
        self.prepared: list[str] = []

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self.prepared += [table.name for table in definitions]


class Followed:
    """One table, which was renamed at ``CHANGED_AT``; the stream stands at ``at``."""

    def __init__(self, log: str, *, at: int, copies: bool = True) -> None:
        self.store = MemoryStore("items")
        self.store.open()
        self.tables = FollowedTables(self.store, print, merges=True, copies=copies)
        self.tables.enrol([TABLE], 0)
        self.store.update_table_state(TABLE.oid, Ready())
        self.store.store_table_schemas([LATER], CHANGED_AT)
        self.tables.take_part()
        self.destination = Prepared()
        frontier = Frontier(at, at + 1)
        committer: Any = SimpleNamespace(
            standing=Standing(frontier),
            lock=nullcontext(),
            read_up_to=frontier,
            commit_sections=self._commit_sections,
        )
        self.committer = committer
        subscribed: Any = SimpleNamespace(publications=())
        self.follower = SchemaFollower(
            self.destination,
            self.store,
            self.tables,
            committer,
            ChangeLog(log),
            subscribed,
            SchemaPolicy(),
            1,
            lambda *_: JobResult(),
            None,
            print,
            Metrics("items"),
        )

    def _commit_sections(self, _sections: object, frontier: Frontier, _job: JobResult) -> None:
        self.committer.read_up_to = frontier


@pytest.mark.parametrize(("at", "name"), [(CHANGED_AT, "renamed"), (CHANGED_AT - 1, "items")])
def test_tables_whose_change_got_no_answer_are_prepared_where_the_destination_stands(
    tmp_path: Any, at: int, name: str
) -> None:
    followed = Followed(str(tmp_path), at=at)
    followed.tables.unprepared.add(TABLE.oid)
    conn: Any = None
    assert followed.follower.follow(conn, lambda: True)
    assert followed.destination.prepared == [name]
    assert followed.follower.follow(conn, lambda: True)
    assert followed.destination.prepared == [name], "once is enough"


def test_rows_that_the_catalogue_does_not_explain_have_their_table_copied_anew(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_follower, "read_definitions_by_oid", lambda *_: {TABLE.oid: LATER})
    followed = Followed(str(tmp_path), at=600)
    seen = TableChanged("it has changed", table=TABLE.oid, commit_lsn=600)
    conn: Any = None
    followed.follower.notice(conn, seen)
    assert followed.store.get_table_state(TABLE.oid) == Init()
    # Where tables are not copied, a person has to look.
    followed = Followed(str(tmp_path), at=600, copies=False)
    with pytest.raises(TableChanged):
        followed.follower.notice(conn, seen)
    assert followed.store.get_table_state(TABLE.oid) == Ready()


@pytest.mark.parametrize(("is_rewrite", "wanted"), [(True, "resync"), (False, None)])
def test_a_table_that_was_rewritten_is_copied_anew(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, is_rewrite: bool, wanted: str | None
) -> None:
    """No change of a row tells of what its rows hold after that."""
    monkeypatch.setattr(schema_follower, "published_columns", lambda *_: {})
    monkeypatch.setattr(schema_follower, "tables_in", lambda *_: {TABLE.oid: TABLE})
    log = LoggedBuilder(ChangeLog(str(tmp_path)))
    commit_lsn = log.commit(log.change(TABLE.oid, rewrite=is_rewrite))
    followed = Followed(str(tmp_path), at=commit_lsn - 1)
    conn: Any = SimpleNamespace(execute=lambda *_: None)
    assert followed.follower.follow(conn, lambda: True)
    assert followed.committer.read_up_to.commit_lsn == commit_lsn
    assert followed.store.get_wish(TABLE.oid) == wanted
