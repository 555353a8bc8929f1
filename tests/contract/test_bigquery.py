"""The contract suite on `bigquery`, with a stand-in for BigQuery (tests/bigquery_stand_in.py): it
talks to Google's own client, BigQuery's analyser looks at every statement, DuckDB executes them.
"""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from penstock.destination.bigquery import session
from penstock.destination.bigquery.destination import BigQueryDestination
from penstock.destination.bigquery.options import BigQueryOptions
from penstock.destination.contract import Destination, Rows, SchemaChange
from penstock.model.errors import (
    BatchAgain,
    DestinationError,
    DestinationUnavailable,
    Fenced,
    TableRefused,
)
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TypeName
from penstock.model.watermarks import Watermarks
from penstock.testing import DestinationContract, TableName
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column
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
from tests.bigquery_stand_in import LOCATION, PROJECT, STAGE, BigQueryStandIn
from tests.lake_drivers import items_with
from tests.warehouse_adapter import WarehouseAdapter, WarehouseChanges, WarehouseLatest
from tests.warehouse_alterations import (
    expect_a_count_disbelieved,
    expect_counts_of_older_versions_understood,
    expect_done_once_around_another_commit,
    expect_none_skipped_with_a_table_more,
    expect_none_skipped_without_a_refused_table,
)
from tests.warehouse_drivers import (
    every_kind_of_change,
    expect_none_lost_at_failpoints,
    expect_rename_refused,
    expect_rows_left,
    expect_stale_driver_refused,
)

TEXT, NUMBER = TypeName("pg_catalog", "text"), TypeName("pg_catalog", "bigint")


class StandInAdapter(WarehouseAdapter):
    plain_names = True

    def __init__(self, **options: object) -> None:
        super().__init__(lambda: BigQueryDestination(self.options, "shop"))
        self.stand_in = BigQueryStandIn()
        given = {
            "project": PROJECT,
            "location": LOCATION,
            "stage": STAGE,
            "stage_options": self.stand_in.stage_options,
            "mode": self.mode,
            **options,
        }
        self.options = BigQueryOptions.model_validate(given)

    def read(self, relation: TableName) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        return self.stand_in.read(f'SELECT * FROM "{relation[0]}"."{relation[1]}"')

    def close(self) -> None:
        super().close()
        self.stand_in.close()
        assert not self.stand_in.refused


class StandInChanges(WarehouseChanges, StandInAdapter):
    """Change tables."""


class StandInLatest(WarehouseLatest, StandInAdapter):
    """The views over them."""


@pytest.fixture
def made(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandInAdapter]:
    """Of the class that a test names."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://")  # lets obstore speak plain HTTP
    adapter: StandInAdapter = getattr(request, "param", StandInAdapter)()
    monkeypatch.setattr(session, "made_client", adapter.stand_in.client)
    yield adapter
    adapter.close()


@pytest.fixture
def adapter(made: StandInAdapter) -> StandInAdapter:
    return made


@pytest.mark.release
@pytest.mark.parametrize(
    "made", [StandInAdapter, StandInChanges], ids=["merge", "append"], indirect=True
)
class TestBigQueryStandIn(DestinationContract):
    """Not on BigQuery."""


@pytest.mark.parametrize("made", [StandInLatest], indirect=True)
def test_the_view_over_a_change_table_shows_the_rows(adapter: StandInAdapter) -> None:
    expect_rows_left(adapter)


@pytest.mark.parametrize("made", [StandInChanges], indirect=True)
def test_a_script_whose_answer_is_lost_adds_its_changes_once(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    changes = every_kind_of_change(builder)
    adapter.stand_in.unanswered.append("BEGIN TRANSACTION")
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    (script,) = _scripts(adapter.stand_in)[-1:]
    assert not [line for line in script if line.startswith("MERGE")]


@pytest.mark.parametrize("made", [StandInAdapter, StandInChanges], indirect=True)
def test_a_batch_that_is_merged_in_slices_is_one_script(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else some of them could be committed with the mark of all."""
    monkeypatch.setattr(BigQueryDestination, "bytes_at_once", 60)
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 20)
    adapter.stand_in.jobs.clear()
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    scripts = _scripts(adapter.stand_in)
    assert len(scripts) == 1
    assert len([line for line in scripts[0] if "`items`" in line]) > 1


def _scripts(stand_in: BigQueryStandIn) -> list[list[str]]:
    return [job.split("\n") for job in stand_in.jobs if job.startswith("BEGIN TRANSACTION")]


def test_a_batch_is_one_script_with_one_merge_a_table(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    first = insert_items(builder, 0, 3)
    deliver(destination, builder.frontier, [first])
    adapter.stand_in.jobs.clear()
    with builder.transaction():
        builder.update(ITEMS, "1", "changed")
        builder.delete(ITEMS, key=["2", None])
        builder.update(ITEMS, "7", "moved", key=["0", None])
        builder.insert(LOOSE, "a", None)
    second = builder.cut()
    deliver(destination, builder.frontier, [second])
    assert_delivered(adapter, reference(first, second))
    (script,) = _scripts(adapter.stand_in)
    assert len(adapter.stand_in.jobs) == 1  # the driver knows its notes
    begun = [line.partition(" ")[0] for line in script]
    # The fence and its count, the rows and their count, those without a key, the notes.
    assert begun == [
        *("BEGIN", "UPDATE", "IF", "MERGE", "IF", "INSERT", "DELETE", "INSERT", "COMMIT"),
    ]
    # The keys before: no more is read.
    assert " AND penstock_kept.`id` BETWEEN 0 AND 2 " in script[3]
    assert [*adapter.stand_in.objects] == [f"{STAGE.removeprefix('gs://')}/shop/notes/1.note.json"]


def test_a_column_may_have_the_name_of_an_alias(adapter: StandInAdapter) -> None:
    """ZetaSQL refuses a column that an alias hides."""
    destination, builder = opened(adapter), ChangeBuilder()
    columns = (ITEMS.columns[0], Column("t", "text"), Column("r", "text"))
    odd = replace(ITEMS, oid=ITEMS.oid + 500, name="odd", columns=columns)
    destination.prepare([definition(odd)])
    with builder.transaction():
        builder.insert(odd, "1", "x", "y")
    first = builder.cut()
    with builder.transaction():
        builder.update(odd, "1", UNSET, "z")
    second = builder.cut()
    for some in (first, second):
        deliver(destination, builder.frontier, [some])
    (row,) = adapter.rows((odd.schema, odd.name))
    assert dict(row) == {"id": "1", "t": "x", "r": "z"}


def test_a_commit_without_rows_sends_nothing(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    adapter.stand_in.jobs.clear()
    deliver(destination, Frontier(2**40, 2**40), [])
    assert destination.committed() == Watermarks(Frontier(2**40, 2**40))
    assert not adapter.stand_in.jobs
    idle = adapter.make()
    idle.check()
    idle.check()
    assert len(adapter.stand_in.jobs) == 1  # which reads a file of the stage


def test_another_driver_takes_over_in_the_middle_of_a_commit(adapter: StandInAdapter) -> None:
    expect_stale_driver_refused(adapter)


def test_of_two_drivers_that_take_over_at_once_one_tries_again(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the same number."""
    first, second = adapter.make(), adapter.make()
    assert isinstance(first, BigQueryDestination)
    assert isinstance(second, BigQueryDestination)
    read, numbers = first.ledger._driver_note, list[int]()

    def _meanwhile() -> str:
        found = read()
        if not numbers:
            numbers.append(second.ledger.take_over())
        return found

    monkeypatch.setattr(first.ledger, "_driver_note", _meanwhile)
    assert (first.ledger.take_over(), numbers) == (2, [1])


def test_an_answer_that_is_lost_is_asked_for_by_the_name_of_the_job(
    adapter: StandInAdapter,
) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    adapter.stand_in.unanswered.append("^BEGIN TRANSACTION")
    deliver(destination, builder.frontier, [changes])
    assert not adapter.stand_in.unanswered
    assert_delivered(adapter, reference(changes))


@pytest.mark.parametrize("is_first", [True, False])
def test_a_script_that_nobody_waits_for_does_not_commit_beside_its_successor(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """BigQuery took it, and is away before it is done. Whichever of both comes first, the other one
    finds that the turn is not its own.
    """
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    adapter.stand_in.late.append("^BEGIN TRANSACTION")
    monkeypatch.setattr(session, "_RETRY_SECONDS", 0.1)
    with pytest.raises(DestinationUnavailable):
        deliver(destination, builder.frontier, [changes])
    adapter.stand_in.is_away = False
    assert destination.committed() is None  # it is still under way
    if is_first:
        adapter.stand_in.catch_up()
        with pytest.raises(BatchAgain, match="whose answer was lost has committed"):
            deliver(destination, builder.frontier, [changes])
    else:
        deliver(destination, builder.frontier, [changes])
        adapter.stand_in.catch_up()
    assert destination.committed() == Watermarks(builder.frontier)
    assert_delivered(adapter, reference(changes))


def test_a_transaction_that_is_cancelled_comes_again(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    message = "Transaction is aborted due to concurrent update against table shop:public.items."
    adapter.stand_in.faults.append(("^INSERT INTO `public`", "invalidQuery", message))
    with pytest.raises(BatchAgain, match="another transaction was faster"):
        deliver(destination, builder.frontier, [changes])
    assert destination.committed() is None
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


@pytest.mark.parametrize(
    ("reason", "error"), [("backendError", DestinationUnavailable), ("invalidQuery", TableRefused)]
)
def test_a_script_that_fails_half_way_leaves_nothing(
    adapter: StandInAdapter, reason: str, error: type[DestinationError]
) -> None:
    """And is refused of the table whose statement failed."""
    destination, builder = opened(adapter), ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(LOOSE, "b", None)
    adapter.stand_in.faults.append(("^INSERT INTO `public`.`loose`", reason, "as the test wants"))
    with pytest.raises(error, match="as the test wants") as raised:
        deliver(destination, builder.frontier, [builder.cut()])
    if isinstance(raised.value, TableRefused):
        assert raised.value.table == LOOSE.oid
    assert not adapter.rows(("public", "items"))


def test_a_table_that_somebody_else_wrote_to_is_refused(adapter: StandInAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder()
    deliver(destination, builder.frontier, [insert_items(builder, 0, 2)])
    adapter.stand_in.read("DELETE FROM public.items WHERE id = 1")
    with builder.transaction():
        builder.update(ITEMS, "1", "changed")
    with pytest.raises(TableRefused, match="1 rows that change are not there") as refused:
        deliver(destination, builder.frontier, [builder.cut()])
    assert refused.value.table == ITEMS.oid


def test_more_tables_than_a_transaction_changes_are_two_scripts(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has marks of how far it goes: after a crash it does not come again."""
    monkeypatch.setattr(session, "_MOST_TABLES", 1)
    destination, builder = opened(adapter), ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(LOOSE, "b", None)
    changes = builder.cut()
    adapter.stand_in.faults.append(("^INSERT INTO `public`.`loose`", "backendError", "half-way"))
    with pytest.raises(DestinationUnavailable, match="half-way"):
        deliver(destination, builder.frontier, [changes])
    assert adapter.rows(("public", "items"))
    assert not adapter.rows(("public", "loose"))
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def test_long_notes_go_by_way_of_a_file(adapter: StandInAdapter) -> None:
    destination = opened(adapter)
    assert isinstance(destination, BigQueryDestination)
    notes = {f"note/{number}": "x" * 40_000 for number in range(30)}
    with destination.transaction():
        destination.ledger.write(destination._driver, {**notes, "note/0": None})
    other = adapter.make()
    assert isinstance(other, BigQueryDestination)
    del notes["note/0"]
    assert other.ledger.read("note/") == notes


@pytest.mark.parametrize("name", ["it.ems", "it$ems", "it'ems"])
def test_a_name_that_bigquery_does_not_take_is_refused(adapter: StandInAdapter, name: str) -> None:
    destination = opened(adapter)
    with pytest.raises(TableRefused, match="is no name of a table in BigQuery"):
        destination.prepare([replace(definition(ITEMS), oid=30_001, name=name)])


def test_a_driver_dies_at_every_job_around_a_schema_change(adapter: StandInAdapter) -> None:
    """Each driver comes one job further than the one before it. The key gets another name, by which
    the table lies, and two columns exchange theirs.
    """
    key = (1, "id", NUMBER, None)
    two = items_with(key, (2, "name", TEXT, None), (3, "b", TEXT, '{"x"}'), name="items")
    other = items_with(
        (1, "key", NUMBER, None), (2, "name", TEXT, None), (3, "b", TEXT, None), name="items"
    )
    after = items_with(
        (1, "key", NUMBER, None), (2, "b", TEXT, None), (3, "name", TEXT, None), name="items"
    )
    opened(adapter).close()
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    rows = builder.cut()
    states = ((definition(ITEMS), two), (two, other), (other, after))
    changes = [
        SchemaChange(Position(1, number), 0, "ALTER TABLE", (TableChange(before, behind),))
        for number, (before, behind) in enumerate(states, start=1)
    ]
    died = 0
    while True:
        destination = opened(adapter)
        assert isinstance(destination, BigQueryDestination)
        sections: list[SchemaChange | Rows] = [
            Rows((destination.writer().write([rows]),)),
            *changes,
        ]
        adapter.stand_in.left = died
        try:
            destination.commit_sections(sections, Watermarks(builder.frontier))
            break
        except DestinationError:
            died += 1
        finally:
            adapter.stand_in.left = None
            destination.close()
    assert died > 8
    _, found = adapter.stand_in.read("SELECT key, name, b FROM public.items")
    assert found == [(1, "x", "a")]


def test_a_table_does_not_take_the_place_of_one_that_stayed(adapter: StandInAdapter) -> None:
    expect_rename_refused(adapter)


def test_a_driver_that_slept_in_a_schema_change_drops_no_table_of_the_next_one(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes between the table that it made and the drop of the one before, whose name the next
    driver's has by then.
    """
    after = items_with((1, "id", NUMBER, None), (2, "name", NUMBER, None), name="items")
    change = TableChange(definition(ITEMS), after)
    altered = SchemaChange(Position(1, 1), 0, "ALTER TABLE", (change,))
    stale, builder = opened(adapter), ChangeBuilder()
    assert isinstance(stale, BigQueryDestination)
    with builder.transaction():
        builder.insert(ITEMS, "1", "7")
    deliver(stale, builder.frontier, [builder.cut()])
    at, run, others = Watermarks(Frontier(2**40, 2**40)), stale.session.run, list[Destination]()

    def sleeping(statement: str) -> int:
        found = run(statement)
        if "penstock_swapped" in statement and statement.startswith("CREATE") and not others:
            others.append(opened(adapter))
            assert isinstance(others[0], BigQueryDestination)
            others[0].commit_sections([altered], at)
        return found

    monkeypatch.setattr(stale.session, "run", sleeping)
    with pytest.raises(Fenced, match="taken over"):
        stale.commit_sections([altered], at)
    assert others
    assert adapter.rows(("public", "items")).total() == 1


def test_a_parked_key_is_noted_with_the_rows_that_are_committed(adapter: StandInAdapter) -> None:
    """A schema change behind them commits them before the batch's own notes."""
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, BigQueryDestination)
    destination.replaying([ITEMS.oid])
    with builder.transaction():
        builder.insert(ITEMS, "2", "whole")
        builder.update(ITEMS, "1", UNSET)
    rows = Rows((destination.writer().write([builder.cut()]),))
    two = items_with((1, "id", NUMBER, None), (2, "name", TEXT, None), (3, "b", TEXT, None),
                     name="items")  # fmt: skip
    change = TableChange(definition(ITEMS), two)
    altered = SchemaChange(Position(1, 1), 0, "ALTER TABLE", (change,))
    adapter.stand_in.faults.append(("^ALTER TABLE", "backendError", "it dies here"))
    with pytest.raises(DestinationUnavailable, match="it dies here"):
        destination.commit_sections([rows, altered], Watermarks(builder.frontier))
    assert adapter.rows(("public", "items")).total() == 1
    successor = opened(adapter)
    assert isinstance(successor, BigQueryDestination)
    assert successor.parked_keys(ITEMS.oid) == [("1",)]


def test_a_driver_dies_at_each_failpoint(
    adapter: StandInAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_none_lost_at_failpoints(adapter, "bigquery", monkeypatch)


def test_statements_have_a_bound_on_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://")
    adapter = StandInAdapter(maximum_bytes_billed="1GiB")
    monkeypatch.setattr(session, "made_client", adapter.stand_in.client)
    destination, builder = opened(adapter), ChangeBuilder()
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    for job in adapter.stand_in.bounds:
        if job["query"].startswith("BEGIN TRANSACTION"):
            assert job["scriptOptions"]["statementByteBudget"] == str(2**30)
        else:
            assert job["maximumBytesBilled"] == str(2**30)
    adapter.close()


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
    return lambda pattern: adapter.stand_in.faults.append((pattern, "backendError", "lost"))
