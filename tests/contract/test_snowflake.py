"""The contract suite on `snowflake`, with a stand-in for Snowflake (tests/snowflake_stand_in.py):
its statements are translated by sqlglot and executed by DuckDB, and its stage is in SeaweedFS.
"""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import duckdb
import pytest
from snowflake.connector import errors

from penstock.destination.contract import Rows, SchemaChange
from penstock.destination.families.target import Target
from penstock.destination.snowflake import session
from penstock.destination.snowflake.destination import SnowflakeDestination
from penstock.destination.snowflake.options import SnowflakeOptions
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TypeName
from penstock.model.watermarks import Watermarks
from penstock.testing import DestinationContract, TableName
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import (
    BARE,
    ITEMS,
    assert_delivered,
    definition,
    deliver,
    insert_items,
    opened,
    reference,
)
from tests.lake_drivers import items_with
from tests.objects_server import ObjectServer
from tests.snowflake_stand_in import STAGE, SnowflakeStandIn, stand_in_module
from tests.warehouse_adapter import WarehouseAdapter, WarehouseChanges, WarehouseLatest
from tests.warehouse_alterations import (
    expect_a_count_disbelieved,
    expect_counts_of_older_versions_understood,
    expect_done_once_around_another_commit,
    expect_none_skipped_with_a_table_more,
    expect_none_skipped_without_a_refused_table,
)
from tests.warehouse_drivers import (
    expect_late_commit_found,
    expect_names_handed_on,
    expect_none_lost_at_failpoints,
    expect_rename_refused,
    expect_rows_left,
    expect_table_taken_back,
    expect_tables_recreated,
)


class StandInAdapter(WarehouseAdapter):
    def __init__(self, objects: ObjectServer) -> None:
        super().__init__(lambda: SnowflakeDestination(self.options, "shop"))
        options = {
            "account": "stand-in",
            "user": "loader",
            "private_key_file": "/no/such/key",
            "warehouse": "LOADING",
            "database": "LAKE",
            "stage": objects.place(),
            "stage_options": objects.direct_options,
            "external_stage": STAGE,
            "mode": self.mode,
        }
        self.options = SnowflakeOptions.model_validate(options)
        self.stand_in = SnowflakeStandIn(self.options.stage, objects.direct_options)

    def read(self, relation: TableName) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        schema, table = map(self._made[-1].dialect.quoted, relation)
        return self.stand_in.read(f"SELECT * FROM {schema}.{table}")

    def close(self) -> None:
        super().close()
        self.stand_in.close()
        assert not self.stand_in.committed_by


class StandInChanges(WarehouseChanges, StandInAdapter):
    """Change tables."""


class StandInLatest(WarehouseLatest, StandInAdapter):
    """The views over them."""


@pytest.fixture
def made(
    request: pytest.FixtureRequest, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandInAdapter]:
    """Of the class that a test names."""
    adapter: StandInAdapter = getattr(request, "param", StandInAdapter)(object_server)
    module = stand_in_module(adapter.stand_in)
    monkeypatch.setattr(session, "connector", lambda: module)
    yield adapter
    adapter.close()


@pytest.fixture
def adapter(made: StandInAdapter) -> StandInAdapter:
    return made


@pytest.mark.release
@pytest.mark.parametrize(
    "made", [StandInAdapter, StandInChanges], ids=["merge", "append"], indirect=True
)
class TestSnowflakeStandIn(DestinationContract):
    """Not on Snowflake."""


@pytest.mark.parametrize("made", [StandInLatest], indirect=True)
def test_the_view_over_a_change_table_shows_the_rows(adapter: StandInAdapter) -> None:
    expect_rows_left(adapter)


@pytest.mark.parametrize("made", [StandInChanges], indirect=True)
def test_every_change_stands_once_whatever_the_driver_dies_at(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_none_lost_at_failpoints(adapter, "snowflake", monkeypatch)


@pytest.mark.parametrize(
    "made", [StandInAdapter, StandInChanges], ids=["merge", "append"], indirect=True
)
def test_a_table_takes_the_name_of_one_that_stayed(adapter: StandInAdapter) -> None:
    expect_tables_recreated(adapter)


def test_a_table_that_stayed_is_taken_back(adapter: StandInAdapter) -> None:
    expect_table_taken_back(adapter)


def test_a_name_is_handed_on_in_one_transaction(adapter: StandInAdapter) -> None:
    expect_names_handed_on(adapter)


def test_a_table_does_not_take_the_place_of_one_that_stayed(adapter: StandInAdapter) -> None:
    expect_rename_refused(adapter)


def test_a_batch_is_one_transaction_with_one_merge_a_table(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    first = insert_items(builder, 0, 3)
    deliver(destination, builder.frontier, [first])
    adapter.stand_in.statements.clear()
    with builder.transaction():
        builder.update(ITEMS, "1", "changed")
        builder.delete(ITEMS, key=["2", None])
        builder.update(ITEMS, "7", "moved", key=["0", None])
    second = builder.cut()
    deliver(destination, builder.frontier, [second])
    assert_delivered(adapter, reference(first, second))
    sent = [each.partition(" ")[0] for each in adapter.stand_in.statements]
    # The fence, the rows, the staged ones gone, the notes.
    assert sent == ["BEGIN", "UPDATE", "COPY", "MERGE", "DELETE", "DELETE", "INSERT", "COMMIT"]


def test_rows_without_a_value(adapter: StandInAdapter) -> None:
    """Nothing but null in one column, or no column at all: no line of a file is blank."""
    single = table("single", Column("a", "text"), identity="f")
    destination, builder = opened(adapter, single, BARE), ChangeBuilder()
    with builder.transaction():
        builder.insert(single, None)
        builder.insert(single, "")
        builder.insert(BARE)
    changes = builder.cut()
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes), single, BARE)


def test_a_commit_without_rows_sends_nothing(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    adapter.stand_in.statements.clear()
    deliver(destination, Frontier(2**40, 2**40), [])
    assert destination.committed() == Watermarks(Frontier(2**40, 2**40))
    assert not adapter.stand_in.statements
    idle = adapter.make()
    idle.check()
    idle.check()
    assert adapter.stand_in.statements == [f"DESCRIBE STAGE {STAGE}"]  # which needs no warehouse


def test_a_transaction_that_waited_too_long_comes_again(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    adapter.stand_in.faults.append(("^COMMIT", 625))
    with pytest.raises(BatchAgain, match="another transaction was faster"):
        deliver(destination, builder.frontier, [changes])
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


@pytest.mark.parametrize("error", [errors.ReauthenticationRequest, errors.ProgrammingError])
def test_a_session_that_ended_while_the_pipeline_was_idle_is_followed_by_another(
    adapter: StandInAdapter, error: type[errors.ProgrammingError]
) -> None:
    """Snowflake keeps one that says nothing for four hours."""
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    ended = error(msg="Authentication token has expired. The user must authenticate again.")
    ended.errno = 390114
    adapter.stand_in.faults.append(("^BEGIN", ended))
    with pytest.raises(DestinationUnavailable, match="must authenticate again"):
        deliver(destination, builder.frontier, [changes])
    assert destination.committed() is None
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def test_a_commit_whose_answer_was_lost_lands_after_the_warehouse_was_asked(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_late_commit_found(adapter, monkeypatch)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_driver_dies_at_every_statement_around_a_schema_change(
    adapter: StandInAdapter, is_done: bool
) -> None:
    """A statement that changes a table commits what is before it: rows, with a mark of theirs. Each
    driver comes one statement further than the one before it. Two columns exchange their names, and
    the table gets another one.
    """
    text, number = TypeName("pg_catalog", "text"), TypeName("pg_catalog", "bigint")
    key = (1, "id", number, None)
    two = items_with(key, (2, "name", text, None), (3, "b", text, '{"x"}'), name="items")
    after = items_with(key, (2, "b", text, None), (3, "name", text, None), name="goods")
    opened(adapter).close()
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    rows = builder.cut()
    changes = [
        SchemaChange(Position(1, number), 0, "ALTER TABLE", (TableChange(before, behind),))
        for number, (before, behind) in enumerate(((definition(ITEMS), two), (two, after)), start=1)
    ]
    adapter.stand_in.is_done = is_done
    died = 0
    while True:
        destination = adapter.make()
        destination.open()
        if destination.committed() is not None:
            break  # the answer to the last commit was lost
        destination.prepare([definition(ITEMS)])
        sections: list[SchemaChange | Rows] = [
            Rows((destination.writer().write([rows]),)),
            *changes,
        ]
        adapter.stand_in.left = died
        try:
            assert isinstance(destination, SnowflakeDestination)
            destination.commit_sections(sections, Watermarks(builder.frontier))
            break
        except DestinationError:
            died += 1
        finally:
            adapter.stand_in.left = None
            destination.close()
    assert died > 12
    _, found = adapter.stand_in.read('SELECT "ID", "NAME", "B" FROM "PUBLIC"."GOODS"')
    assert found == [(1, "x", "a")]
    with pytest.raises(duckdb.CatalogException, match="ITEMS"):
        adapter.stand_in.read('SELECT * FROM "PUBLIC"."ITEMS"')


def test_a_driver_dies_at_each_failpoint(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_none_lost_at_failpoints(adapter, "snowflake", monkeypatch)


def test_names_are_exchanged_once(adapter: StandInAdapter) -> None:
    """The columns are called as before: nothing but the mark tells that it was done."""
    text, number = TypeName("pg_catalog", "text"), TypeName("pg_catalog", "bigint")
    key = (1, "id", number, None)
    two = items_with(key, (2, "name", text, None), (3, "b", text, '{"x"}'), name="items")
    exchanged = items_with(key, (2, "b", text, None), (3, "name", text, None), name="items")
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, SnowflakeDestination)
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    deliver(destination, builder.frontier, [builder.cut()])
    for before, after in ((definition(ITEMS), two), (two, exchanged)):
        for _ in range(2):  # a crash may make it happen again
            with destination.transaction():
                destination.alter(TableChange(before, after), Target.of(before), Target.of(after))
    _, found = adapter.stand_in.read('SELECT "ID", "NAME", "B" FROM "PUBLIC"."ITEMS"')
    assert found == [(1, "x", "a")]


def test_a_transaction_comes_again_without_a_table_that_was_refused(
    adapter: StandInAdapter,
) -> None:
    expect_none_skipped_without_a_refused_table(adapter)


def test_a_transaction_comes_again_with_a_table_more(adapter: StandInAdapter) -> None:
    expect_none_skipped_with_a_table_more(adapter, _losing(adapter))


def test_another_commit_comes_between_two_tries_of_a_schema_change(
    adapter: StandInAdapter,
) -> None:
    expect_done_once_around_another_commit(adapter, _losing(adapter))


def test_a_schema_change_goes_on_where_an_older_version_died(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_counts_of_older_versions_understood(adapter, _losing(adapter), monkeypatch)


def test_what_an_older_version_counted_of_a_refused_table_is_not_believed(
    adapter: StandInAdapter,
) -> None:
    expect_a_count_disbelieved(adapter)


def _losing(adapter: StandInAdapter) -> Callable[[str], None]:
    return lambda pattern: adapter.stand_in.faults.append((pattern, 625))
