"""The contract suite on `redshift`, with a stand-in for Redshift (tests/redshift_stand_in.py): its
rows are in Postgres, its stage in SeaweedFS, and every statement passes a deny-list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import psycopg
import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import SchemaChange
from penstock.destination.families.target import Target
from penstock.destination.redshift.destination import RedshiftDestination
from penstock.destination.redshift.options import RedshiftOptions
from penstock.model.errors import BatchAgain, DestinationUnavailable, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TypeName
from penstock.model.watermarks import Watermarks
from penstock.testing import DestinationContract, FrozenRow
from penstock.testing.change_builder import ChangeBuilder, Column, Table, table
from penstock.testing.contract.deliveries import (
    ITEMS,
    LOOSE,
    assert_delivered,
    definition,
    deliver,
    insert_items,
    opened,
    reference,
)
from tests.lake_drivers import expect_others_added_up, items_with
from tests.objects_server import ObjectServer
from tests.redshift_adapter import RedshiftAdapter
from tests.redshift_stand_in import ROLE, RedshiftStandIn
from tests.warehouse_adapter import WarehouseChanges, WarehouseLatest
from tests.warehouse_drivers import (
    every_kind_of_change,
    expect_late_commit_found,
    expect_rows_left,
    expect_stale_driver_refused,
)


class StandInAdapter(RedshiftAdapter):
    def __init__(self, database: str, objects: ObjectServer) -> None:
        self.stand_in = RedshiftStandIn(database, objects.direct_options)
        options = {
            "url": self.stand_in.url,
            "stage": objects.place(),
            "stage_options": objects.direct_options,
            "iam_role": ROLE,
            "mode": self.mode,
        }
        super().__init__(RedshiftOptions.model_validate(options), database)

    def close(self) -> None:
        super().close()
        self.stand_in.close()
        assert not self.stand_in.denied


class StandInChanges(WarehouseChanges, StandInAdapter):
    """Change tables."""


class StandInLatest(WarehouseLatest, StandInAdapter):
    """The views over them."""


@pytest.fixture
def made(
    request: pytest.FixtureRequest, database: str, object_server: ObjectServer
) -> Iterator[StandInAdapter]:
    """Of the class that a test names."""
    adapter: StandInAdapter = getattr(request, "param", StandInAdapter)(database, object_server)
    yield adapter
    adapter.close()


@pytest.fixture
def adapter(made: StandInAdapter) -> StandInAdapter:
    return made


@pytest.mark.release
@pytest.mark.parametrize(
    "made", [StandInAdapter, StandInChanges], ids=["merge", "append"], indirect=True
)
class TestRedshiftStandIn(DestinationContract):
    """Not on Redshift."""


@pytest.mark.parametrize("made", [StandInLatest], indirect=True)
def test_the_view_over_a_change_table_shows_the_rows(adapter: StandInAdapter) -> None:
    expect_rows_left(adapter)


@pytest.mark.parametrize("made", [StandInChanges], indirect=True)
def test_every_change_stands_once_whatever_is_lost(adapter: StandInAdapter) -> None:
    """The answer to a commit is, and then the connection before one."""
    builder, written = ChangeBuilder(), list[ChangeSet]()
    for faulty in ("unanswered", "faults"):
        written.append(every_kind_of_change(builder))
        destination = opened(adapter)
        if faulty == "unanswered":
            adapter.stand_in.unanswered.append("^COMMIT")
        else:
            adapter.stand_in.faults.append(("^INSERT INTO .penstock", "1023 violation"))
        with pytest.raises((DestinationUnavailable, BatchAgain)):
            deliver(destination, builder.frontier, written[-1:])
        destination = opened(adapter)
        at = destination.committed()
        is_kept = at is not None and at.frontier == builder.frontier
        assert is_kept == (faulty == "unanswered")
        if not is_kept:
            deliver(destination, builder.frontier, written[-1:])
        assert_delivered(adapter, reference(*written))


def _rows_of(adapter: StandInAdapter, table: Table) -> Counter[FrozenRow]:
    return adapter.rows((table.schema, table.name))


def test_a_batch_is_one_transaction_that_locks_the_ledger_first(adapter: StandInAdapter) -> None:
    destination = opened(adapter)
    builder = ChangeBuilder()
    first = insert_items(builder, 0, 3)
    deliver(destination, builder.frontier, [first])
    adapter.stand_in.statements.clear()
    with builder.transaction():
        builder.update(ITEMS, "1", "changed")
        builder.delete(ITEMS, key=["2", None])
        builder.insert(LOOSE, "a", None)
    second = builder.cut()
    deliver(destination, builder.frontier, [second])
    assert_delivered(adapter, reference(first, second))
    sent = adapter.stand_in.statements
    assert sent[:2] == ["BEGIN", 'LOCK "penstock"."shop"']
    assert [each for each in sent if each in ("BEGIN", "COMMIT")] == ["BEGIN", "COMMIT"]
    assert sent[-1] == "COMMIT"
    copies = [each for each in sent if each.startswith("COPY")]
    assert len(copies) == 2
    assert not [each for each in sent if each.startswith("SELECT")]  # the driver knows its notes
    left = [each.name for each in destination.bucket.list()]  # type: ignore[attr-defined]
    assert left == ["notes/1.note.json"]


def test_a_commit_without_rows_sends_nothing(adapter: StandInAdapter) -> None:
    destination = opened(adapter)
    builder = ChangeBuilder()
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    adapter.stand_in.statements.clear()
    deliver(destination, Frontier(2**40, 2**40), [])
    assert destination.committed() == Watermarks(Frontier(2**40, 2**40))
    assert not adapter.stand_in.statements
    idle = adapter.make()
    idle.check()
    looked = len(adapter.stand_in.statements)
    idle.check()  # the first look asks the warehouse, and those that follow do not
    assert len(adapter.stand_in.statements) == looked == 2


def test_another_driver_takes_over_in_the_middle_of_a_commit(adapter: StandInAdapter) -> None:
    expect_stale_driver_refused(adapter)


def test_a_transaction_that_redshift_cannot_order_comes_again(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    message = "1023 DETAIL: Serializable isolation violation on table"
    adapter.stand_in.faults.append(("^INSERT INTO .penstock|^COPY", message))
    with pytest.raises(BatchAgain, match="another transaction was faster"):
        deliver(destination, builder.frontier, [changes])
    assert destination.committed() is None
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def test_a_number_in_what_redshift_says_is_no_other_transaction(adapter: StandInAdapter) -> None:
    """The batch would come again and again."""
    destination, builder = opened(adapter), ChangeBuilder()
    message = 'relation "items_1023" does not exist'
    adapter.stand_in.faults.append(("^COPY", message))
    with pytest.raises(TableRefused, match=message):
        deliver(destination, builder.frontier, [insert_items(builder, 0, 2)])


def test_the_answer_to_a_commit_is_lost(adapter: StandInAdapter) -> None:
    """Nobody knows whether it was done: the next driver asks, and does not do it again."""
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    adapter.stand_in.unanswered.append("^COMMIT")
    with pytest.raises(DestinationUnavailable):
        deliver(destination, builder.frontier, [changes])
    assert destination.committed() == Watermarks(builder.frontier)
    assert opened(adapter).committed() == Watermarks(builder.frontier)
    assert_delivered(adapter, reference(changes))


def test_a_commit_whose_answer_was_lost_lands_after_the_warehouse_was_asked(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_late_commit_found(adapter, monkeypatch)


def test_a_load_that_fails_refuses_its_table_and_leaves_nothing(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    adapter.stand_in.faults.append(("^COPY", "Load into table failed"))
    with pytest.raises(TableRefused, match="Load into table failed") as refused:
        deliver(destination, builder.frontier, [insert_items(builder, 0, 2)])
    assert refused.value.table == ITEMS.oid
    assert not _rows_of(adapter, ITEMS)


def test_a_table_that_somebody_else_wrote_to_is_refused(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    deliver(destination, builder.frontier, [insert_items(builder, 0, 2)])
    with psycopg.connect(adapter.reader, autocommit=True) as conn:
        conn.execute("DELETE FROM items WHERE id = 1")
    with builder.transaction():
        builder.update(ITEMS, "1", "changed")
    with pytest.raises(TableRefused, match="1 rows that change are not there"):
        deliver(destination, builder.frontier, [builder.cut()])


def test_the_stand_in_commits_at_truncate_and_refuses_to_retype_in_a_transaction(
    database: str, object_server: ObjectServer
) -> None:
    """As Redshift does it, by its manual. So a destination that did it would be found out."""
    stand_in = RedshiftStandIn(database, object_server.direct_options)
    with psycopg.connect(stand_in.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (a VARCHAR(10))")
        conn.execute("BEGIN")
        with pytest.raises(psycopg.Error, match="cannot run inside of a transaction"):
            conn.execute("ALTER TABLE t ALTER COLUMN a TYPE VARCHAR(20)")
        conn.execute("ROLLBACK")
        with pytest.raises(psycopg.Error, match="TRUNCATE commits the transaction"):
            conn.execute("TRUNCATE t")
    stand_in.close()
    assert len(stand_in.denied) == 2


def test_a_table_follows_what_redshift_cannot_change(adapter: StandInAdapter) -> None:
    """Names are exchanged, a column gets a value for older rows, one becomes wider, the table gets
    another name, and a value is kept through all of it.
    """
    destination = opened(adapter)
    assert isinstance(destination, RedshiftDestination)
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a\\b'c")
        builder.insert(ITEMS, "2", None)
    deliver(destination, builder.frontier, [builder.cut()])
    text, number = TypeName("pg_catalog", "text"), TypeName("pg_catalog", "bigint")
    price, wider = (TypeName("pg_catalog", "numeric", f"({n},2)") for n in (10, 12))
    list_of = replace(text, is_array=True)
    key = (1, "id", number, None)
    states = [
        definition(ITEMS),
        items_with(key, (2, "name", text, None), (3, "b", price, '{"1.50"}'), name="items"),
        items_with(key, (2, "b", text, None), (3, "name", wider, None), name="items"),
        items_with(key, (2, "b", text, None), (3, "name", wider, None),
                   (4, "c", list_of, r'{"{x,NULL,\"a\\\\b\"}"}'), name="It ems"),
    ]  # fmt: skip
    for before, after in pairwise(states):
        with destination.transaction():
            destination.alter(TableChange(before, after), Target.of(before), Target.of(after))
    with psycopg.connect(adapter.reader) as conn:
        found = conn.execute('SELECT id, b, name, c FROM "it ems" ORDER BY id').fetchall()
    filled = ["x", None, "a\\b"]
    assert found == [(1, "a\\b'c", Decimal("1.50"), filled), (2, None, Decimal("1.50"), filled)]


def test_a_table_that_lacks_a_column_keeps_no_other_from_being_added_up(
    adapter: StandInAdapter,
) -> None:
    def harm() -> None:
        with adapter.connected() as conn:
            conn.execute("ALTER TABLE public.items DROP COLUMN name")

    expect_others_added_up(adapter, harm)


@pytest.mark.parametrize("at_once", [True, False])
def test_two_tables_that_are_one_to_redshift_are_refused(
    adapter: StandInAdapter, at_once: bool
) -> None:
    destination = opened(adapter)
    assert isinstance(destination, RedshiftDestination)
    odd = replace(definition(ITEMS), oid=30_001, name="Odd")
    other = replace(odd, oid=30_002, name="odd")
    if not at_once:
        destination.prepare([odd])
    with pytest.raises(TableRefused, match=r"public\.Odd have the same name") as refused:
        destination.prepare([odd, other])
    assert refused.value.table == other.oid


def test_rows_without_a_key_that_are_alike_go_one_by_one(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    with builder.transaction():
        for text in ("same", "same", "same", "other"):
            builder.insert(LOOSE, text, None)
    changes = [builder.cut()]
    deliver(destination, builder.frontier, changes)
    with builder.transaction():
        builder.delete(LOOSE, full=["same", None])
        builder.insert(LOOSE, "new", "x")
    changes.append(builder.cut())
    deliver(destination, builder.frontier, changes[1:])
    assert_delivered(adapter, reference(*changes))
    assert _rows_of(adapter, LOOSE).total() == 4


JANUARY = table("events_01", Column("id", "int8", key=True), Column("note", "text"), oid=30_101)
FEBRUARY = replace(JANUARY, oid=30_102, name="events_02")
FOLDED = {"match": "public.events_*", "into": "all.events"}


def folding(adapter: StandInAdapter, *folded: dict[str, str]) -> RedshiftDestination:
    """A new driver, whose pipeline file says so."""
    given = {**adapter.options.model_dump(exclude={"folded"}), "folded": folded}
    adapter.options = RedshiftOptions.model_validate(given)
    destination = opened(adapter)
    assert isinstance(destination, RedshiftDestination)
    return destination


def shown(adapter: StandInAdapter, view: str = '"all".events') -> list[tuple[object, ...]]:
    with psycopg.connect(adapter.reader) as conn:
        return conn.execute(f"SELECT * FROM {view} ORDER BY id".encode()).fetchall()  # noqa: S608


def test_tables_whose_names_fit_are_shown_as_one(adapter: StandInAdapter) -> None:
    """Through all that becomes of them: the view follows in the same transaction."""
    destination, builder = folding(adapter, FOLDED), ChangeBuilder()
    first, second = definition(JANUARY), definition(FEBRUARY)
    destination.prepare([first])
    with builder.transaction():
        builder.insert(JANUARY, "1", "a")
    deliver(destination, builder.frontier, [builder.cut()])
    assert shown(adapter) == [(1, "a")]

    destination.prepare([second])
    with builder.transaction():
        builder.insert(FEBRUARY, "2", "b")
    deliver(destination, builder.frontier, [builder.cut()])
    assert shown(adapter) == [(1, "a"), (2, "b")]

    # One of them gets a column, and another type for one: nothing of the other is lost.
    number, flag = TypeName("pg_catalog", "bigint"), TypeName("pg_catalog", "boolean")
    wider = replace(
        second,
        columns=(
            ColumnDefinition(1, "id", number, not_null=True),
            ColumnDefinition(3, "note", flag, missing="{t}"),
            ColumnDefinition(4, "more", number, missing="{7}"),
        ),
    )
    altered = SchemaChange(Position(1, 1), 0, "ALTER TABLE", (TableChange(second, wider),))
    destination.commit_sections([altered], Watermarks(builder.frontier))
    assert shown(adapter) == [(1, "a", None), (2, "true", 7)]

    renamed = replace(wider, name="other")
    altered = SchemaChange(Position(1, 2), 0, "ALTER TABLE", (TableChange(wider, renamed),))
    destination.commit_sections([altered], Watermarks(builder.frontier))
    assert shown(adapter) == [(1, "a")]
    altered = SchemaChange(Position(1, 3), 0, "ALTER TABLE", (TableChange(renamed, wider),))
    destination.commit_sections([altered], Watermarks(builder.frontier))
    destination.drop_table(first)
    assert shown(adapter) == [(2, True, 7)]


def test_a_view_of_several_tables_comes_and_goes_with_the_pipeline_file(
    adapter: StandInAdapter,
) -> None:
    tables = [definition(JANUARY), definition(FEBRUARY)]
    folding(adapter).prepare(tables)
    folding(adapter, FOLDED).prepare(tables)
    assert shown(adapter) == []
    adapter.stand_in.statements.clear()
    folding(adapter, FOLDED).prepare(tables)
    assert not [each for each in adapter.stand_in.statements if "VIEW" in each]
    folding(adapter, {**FOLDED, "into": "public.events"}).prepare(tables)
    assert shown(adapter, "public.events") == []
    with pytest.raises(psycopg.errors.UndefinedTable):
        shown(adapter)


def test_a_table_with_the_name_of_such_a_view_is_refused(adapter: StandInAdapter) -> None:
    destination = folding(adapter, {**FOLDED, "into": "public.Events"})
    with pytest.raises(TableRefused, match=r"name of a view of several tables, public\.Events"):
        destination.prepare([replace(definition(JANUARY), name="events")])
