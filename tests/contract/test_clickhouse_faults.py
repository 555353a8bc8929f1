"""`clickhouse` where things go wrong: the real engine (chdb) and the real client, with our own HTTP
façade between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.destination.clickhouse.destination import ClickHouseDestination
from penstock.destination.clickhouse.ledger import ClickHouseLedger
from penstock.destination.contract import SchemaChange
from penstock.model.errors import BatchAgain, DestinationUnavailable, Fenced, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.watermarks import Watermarks
from penstock.testing import frozen
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.chunk_rows import ChunkRows, copy_chunks
from penstock.testing.contract.deliveries import (
    ITEMS,
    assert_delivered,
    definition,
    deliver,
    deliver_cut,
    on_executor,
    opened,
    reference,
)
from tests.clickhouse_rows import shown_rows
from tests.clickhouse_server import ClickHouseServer
from tests.contract.test_clickhouse import ClickHouseAdapter
from tests.contract.test_family_histories import KIND, NAME, PAIR, rows_left
from tests.row_histories import ALL, KeyedHistory, Step, batches, steps
from tests.search_proxy import Faults, SearchProxy

VALUES = table(
    "values",
    Column("id", "int8", key=True),
    Column("at", "timestamptz"),
    Column("n", "numeric"),
    Column("day", "date"),
)


@pytest.fixture
def adapter(clickhouse_server: ClickHouseServer) -> ClickHouseAdapter:
    return ClickHouseAdapter(clickhouse_server.url)


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


@pytest.fixture
def proxy(clickhouse_server: ClickHouseServer) -> Iterator[SearchProxy]:
    with SearchProxy(clickhouse_server.port) as proxy:
        yield proxy


def options_with(adapter: ClickHouseAdapter, **options: Any) -> None:
    adapter.options = adapter.options.model_copy(update=options)


def start(adapter: ClickHouseAdapter, *tables: Any) -> ClickHouseDestination:
    destination = opened(adapter, *tables)
    assert isinstance(destination, ClickHouseDestination)
    return destination


def shown(destination: ClickHouseDestination) -> list[str]:
    return sorted(str(row["name"]) for row in shown_rows(destination, ITEMS.schema, ITEMS.name))


def test_requests_that_are_refused_and_answers_that_are_lost(
    adapter: ClickHouseAdapter, proxy: SearchProxy, builder: ChangeBuilder
) -> None:
    options_with(adapter, url=proxy.url)
    destination = start(adapter)
    proxy.set(Faults(requests=0.2, answers=0.2, connections=0.1), 7)
    changes = []
    for number in range(3):
        with builder.transaction():
            for row in range(100):
                builder.insert(ITEMS, str(100 * number + row), f"row {row}")
            builder.update(ITEMS, str(100 * number), f"changed {number}")
            builder.delete(ITEMS, key=[str(100 * number + 1), None])
        changes.append(deliver_cut(destination, builder))
    assert proxy.counts["lost"]
    assert proxy.counts["rejected"]
    proxy.set(Faults())
    assert_delivered(adapter, reference(*changes))


def test_the_answer_to_a_statement_that_makes_a_table_is_lost(
    adapter: ClickHouseAdapter, proxy: SearchProxy, builder: ChangeBuilder
) -> None:
    """It is sent again, and the table is there by then."""
    options_with(adapter, url=proxy.url)
    proxy.set(Faults(answers=0.5), 7)
    destination = start(adapter)
    assert proxy.counts["lost"] > 5
    proxy.set(Faults())
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    assert_delivered(adapter, reference(deliver_cut(destination, builder)))


def test_a_pipeline_of_the_same_name_with_another_ledger_is_another_one(
    adapter: ClickHouseAdapter, builder: ChangeBuilder
) -> None:
    """Of a copy of the source, say, whose tables have the same numbers."""
    databases, first = adapter.options.database, start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    deliver_cut(first, builder)
    options_with(adapter, database=f"{databases}_staging", ledger_database="other")
    other = start(adapter)
    other.truncate_table(definition(ITEMS))
    other.complete_table(definition(ITEMS))
    other.drop_table(definition(ITEMS))
    assert shown(first) == ["a"]
    options_with(adapter, database=databases)
    with pytest.raises(TableRefused, match="is there already"):
        start(adapter)


def test_an_engine_that_does_not_answer_in_time_is_unavailable(
    adapter: ClickHouseAdapter, proxy: SearchProxy
) -> None:
    destination = start(adapter)
    proxy.set(Faults(connections=1.0))
    options_with(adapter, url=proxy.url, timeout=0.2)
    with pytest.raises(DestinationUnavailable, match="failed"):
        adapter.make().open()
    assert destination.committed() is None


def test_what_a_stale_driver_and_its_tasks_write_is_refused(
    adapter: ClickHouseAdapter, builder: ChangeBuilder
) -> None:
    stale = start(adapter)
    writer = on_executor(stale.writer())
    current = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "late")
    late = builder.cut()
    with pytest.raises(Fenced, match="taken over"):
        writer.write(iter([late]))
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([], Watermarks(builder.frontier))
    assert current.committed() is None
    assert not adapter.rows((ITEMS.schema, ITEMS.name))
    deliver(current, builder.frontier, [late])
    assert shown(current) == ["late"]


def test_no_two_drivers_have_one_number(adapter: ClickHouseAdapter) -> None:
    first = adapter.make()
    first.open()
    first.forget()
    second = adapter.make()
    second.open()
    with pytest.raises(Fenced):
        first.ledger.write(first._driver, {"progress": "wrong"})
    assert second.ledger.read() == {}


def test_of_two_notes_that_of_the_later_driver_counts(adapter: ClickHouseAdapter) -> None:
    """Also where a stale one got through between two looks."""
    stale, current = adapter.make(), adapter.make()
    stale.open()
    current.open()
    current.ledger.write(current._driver, {"note": "current"})
    ledger = stale.ledger
    assert isinstance(ledger, ClickHouseLedger)
    ledger._insert(stale._driver, {"note": "stale"}, fence="")
    assert current.ledger.read("note") == {"note": "current"}


def test_a_copy_is_seen_when_it_is_whole_and_an_older_one_gets_nothing_in(
    adapter: ClickHouseAdapter, builder: ChangeBuilder
) -> None:
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "old")
    deliver_cut(destination, builder)
    stale = destination.chunk_writer(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    stale.write(ChunkRows(ITEMS, "1", [("9", "of another copy")]))
    assert shown(destination) == ["of another copy", "old"], "readers see what was there"
    copy_chunks(destination, ChunkRows(ITEMS, "1", [("2", "new")]))
    destination.finish_copy(definition(ITEMS))
    destination.complete_table(definition(ITEMS))
    assert shown(destination) == ["new"]
    with pytest.raises(TableRefused, match="is gone"):
        stale.write(ChunkRows(ITEMS, "1", [("9", "of another copy")]))


def test_values_that_do_not_fit(adapter: ClickHouseAdapter, builder: ChangeBuilder) -> None:
    with builder.transaction():
        builder.insert(VALUES, "1", "infinity", "1.5", "1066-10-14")
        builder.insert(VALUES, "2", "2300-01-01 00:00:00+00", "NaN", "-infinity")
        builder.insert(VALUES, "3", "2024-02-29 12:00:00.5+00", "1e400", "2299-12-31")
    changes = builder.cut()
    name = (VALUES.schema, VALUES.name)
    with pytest.raises(TableRefused, match=r"'infinity' in column at does not fit .*id = 1"):
        deliver(start(adapter, VALUES), builder.frontier, [changes])
    options_with(adapter, unfit="truncate")
    destination = start(adapter, VALUES)
    deliver(destination, builder.frontier, [changes])
    last = "2299-12-31 23:59:59.999999+00"
    expected: list[dict[str, str | None]] = [
        {"id": "1", "at": last, "n": "1.5", "day": "1900-01-01"},
        {"id": "2", "at": last, "n": "NaN", "day": "1900-01-01"},
        {"id": "3", "at": "2024-02-29 12:00:00.5+00", "n": "1e400", "day": "2299-12-31"},
    ]
    assert adapter.rows(name) == Counter(map(frozen, expected))
    assert destination.unfit_values(VALUES.oid) == {"at": 2, "day": 2}
    assert "became null or the nearest value" in " ".join(destination.notes(VALUES.oid))


def test_what_somebody_else_made_is_left_alone(adapter: ClickHouseAdapter) -> None:
    first = start(adapter)
    other = ClickHouseAdapter(adapter.options.url)
    options_with(other, database=adapter.options.database)
    with pytest.raises(TableRefused, match="is there already"):
        opened(other)
    second = other.make()
    assert not second.has_foreign_rows(definition(ITEMS)), "there are none yet"
    with (builder := ChangeBuilder()).transaction():
        builder.insert(ITEMS, "1", "ours")
    deliver(first, builder.frontier, [builder.cut()])
    assert second.has_foreign_rows(definition(ITEMS))
    assert not first.has_foreign_rows(definition(ITEMS))


def test_check_tells_of_the_server(adapter: ClickHouseAdapter) -> None:
    assert [note for note in adapter.make().check() if "left" not in note] == []


def test_a_schema_change_is_followed_once(
    adapter: ClickHouseAdapter, builder: ChangeBuilder
) -> None:
    """A driver dies after it has followed, and before it could note that."""
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "kept")
    deliver_cut(destination, builder)
    before = definition(ITEMS)
    columns = tuple(
        replace(column, name="title") if column.name == "name" else column
        for column in before.columns
    )
    after = replace(before, columns=columns)
    change = SchemaChange(Position(10**9, 0), 0, "ALTER TABLE", (TableChange(before, after),))
    target, changed = destination._targets[ITEMS.oid], None
    for _ in range(2):
        destination._alter(change, {ITEMS.oid: target}, {})
        changed = destination._whereabouts(ITEMS.oid)
    assert changed is not None
    destination._follow([change])
    assert shown_rows(destination, ITEMS.schema, ITEMS.name) == [{"id": "1", "title": "kept"}]


@pytest.mark.release
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=steps(30, (*ALL, "truncate")))
def test_any_history(clickhouse_server: ClickHouseServer, plan: list[Step]) -> None:
    adapter = ClickHouseAdapter(clickhouse_server.url)
    builder = ChangeBuilder()
    history = batches(plan, KeyedHistory(KIND, builder), builder)
    destination = start(adapter, PAIR)
    for number, batch in enumerate(history):
        runs = [run for task in batch.tasks for run in task]
        destination.writer().write(runs[: len(runs) // 2])
        destination = start(adapter, PAIR)
        deliver(destination, Frontier(number, number), *batch.tasks)
    expected = rows_left([run for batch in history for task in batch.tasks for run in task])
    assert adapter.rows(NAME) == expected


def test_drivers_that_take_over_at_the_same_time_have_different_numbers(
    adapter: ClickHouseAdapter,
) -> None:
    adapter.make().open()  # the table is there
    drivers = [adapter.make() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        opened_ones = list(pool.map(_number_or_none, drivers))
    numbers = [number for number in opened_ones if number is not None]
    assert numbers
    assert len(set(numbers)) == len(numbers)


def _number_or_none(destination: ClickHouseDestination) -> int | None:
    try:
        return destination.ledger.take_over()
    except BatchAgain:
        return None


def test_a_table_that_was_renamed_before_its_copy_has_one_view(
    adapter: ClickHouseAdapter,
) -> None:
    destination = start(adapter)
    before = definition(ITEMS)
    after = replace(before, name="things")
    destination.fit_table(after, [before])
    destination.prepare([after])
    destination.truncate_table(after)
    destination.finish_copy(after)
    destination.complete_table(after)
    assert [name for name, is_view in destination._own(ITEMS.oid).items() if is_view] == [
        f"`{ITEMS.schema}_{adapter.pipeline.removeprefix('shop')}`.`things`"
    ]
    assert len(destination._own(ITEMS.oid)) == 2
