"""What every destination promises, asked of each of them by what it claims to be able to do."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Destination, TableRows
from penstock.destination.memory import MemoryChange, MemoryWriter, Row
from penstock.errors import Fenced
from penstock.lsn import Frontier
from penstock.table_schema import TableSchema
from tests.change_builder import UNSET, ChangeBuilder, Column, table
from tests.contract.adapters import ADAPTERS, Adapter

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
NOTES = table("notes", Column("id", "int8", key=True), Column("body", "text"))
LOOSE = table("loose", Column("a", "text"), Column("b", "text"), identity="f")
BARE = table("bare")


@pytest.fixture(params=ADAPTERS)
def adapter(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Adapter:
    return ADAPTERS[request.param](tmp_path, monkeypatch)


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


def opened(adapter: Adapter) -> Destination:
    destination = adapter.make()
    destination.check()
    destination.open()
    return destination


def deliver(destination: Destination, frontier: Frontier, *tasks: Sequence[ChangeSet]) -> None:
    """A micro-batch: each task's writer goes to its executor as bytes."""
    writer = pickle.dumps(destination.task_writer())
    receipts = [pickle.loads(writer).write(iter(task)) for task in tasks]  # noqa: S301
    destination.commit(receipts, frontier)


def reference(*changes: ChangeSet) -> list[MemoryChange]:
    found: list[MemoryChange] = pickle.loads(MemoryWriter().write(changes))  # noqa: S301
    return found


def assert_delivered(adapter: Adapter, expected: Sequence[MemoryChange]) -> None:
    if adapter.keeps:
        assert [_sorted(change) for change in adapter.delivered()] == list(map(_sorted, expected))
    else:
        assert adapter.count() == len(expected)


def _sorted(change: MemoryChange) -> tuple[object, ...]:
    return (change.position, change.op, sorted(change.tables), *_rest(change))


def _rest(change: MemoryChange) -> tuple[object, ...]:
    return (change.new, change.old, change.prefix, change.content)


def _rows(adapter: Adapter) -> list[tuple[str, Row | None, Row | None]]:
    return [(change.op, change.new, change.old) for change in adapter.delivered()]


def insert_items(builder: ChangeBuilder, first: int, count: int) -> ChangeSet:
    """Transactions of three changes each, over two tables."""
    for number in range(first, first + count):
        with builder.transaction():
            builder.insert(ITEMS, str(number), f"item {number}")
            builder.insert(NOTES, str(number), None)
            builder.update(ITEMS, str(number), "renamed")
    return builder.cut()


def test_nothing_is_committed_at_first(adapter: Adapter) -> None:
    destination = opened(adapter)
    assert destination.committed() is None
    assert_delivered(adapter, [])


def test_an_empty_commit_moves_the_frontier(adapter: Adapter) -> None:
    destination = opened(adapter)
    for end in (0x10, 0x90):
        destination.commit([], Frontier(0x10, end))
        remembered = Frontier(0x10, end) if destination.capabilities.remembers else None
        assert destination.committed() == remembered
        assert adapter.make().committed() == remembered
    assert_delivered(adapter, [])


def test_every_change_once_and_in_order(adapter: Adapter, builder: ChangeBuilder) -> None:
    destination = opened(adapter)
    changes = insert_items(builder, 0, 40)
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    assert len(reference(changes)) == 120
    if destination.capabilities.remembers:
        assert destination.committed() == builder.frontier


def test_tasks_of_several_runs_over_several_batches(
    adapter: Adapter, builder: ChangeBuilder
) -> None:
    destination = opened(adapter)
    runs = [insert_items(builder, 10 * number, 5) for number in range(6)]
    deliver(destination, builder.frontier, [runs[0], runs[1]], [runs[2]], [])
    deliver(destination, builder.frontier, [runs[3]], [runs[4], runs[5]])
    assert_delivered(adapter, reference(*runs))


def test_a_task_that_ran_twice_counts_once(adapter: Adapter, builder: ChangeBuilder) -> None:
    destination = opened(adapter)
    first, second = insert_items(builder, 0, 5), insert_items(builder, 5, 5)
    destination.task_writer().write([first])
    deliver(destination, builder.frontier, [first], [second])
    assert_delivered(adapter, reference(first, second))


def test_a_task_that_fails_midway_leaves_nothing(adapter: Adapter, builder: ChangeBuilder) -> None:
    destination = opened(adapter)
    changes = insert_items(builder, 0, 5)

    def broken() -> Iterator[ChangeSet]:
        yield changes
        raise RuntimeError("executor lost")

    with pytest.raises(RuntimeError, match="executor lost"):
        destination.task_writer().write(broken())
    assert_delivered(adapter, [])
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def test_a_crash_before_commit_leaves_no_trace(adapter: Adapter, builder: ChangeBuilder) -> None:
    destination = opened(adapter)
    first = insert_items(builder, 0, 5)
    deliver(destination, builder.frontier, [first])
    reached = builder.frontier
    second = insert_items(builder, 5, 5)
    destination.task_writer().write([second])

    destination = opened(adapter)
    if destination.capabilities.remembers:
        assert destination.committed() == reached
    assert_delivered(adapter, reference(first))
    deliver(destination, builder.frontier, [second])
    assert_delivered(adapter, reference(first, second))


def test_after_a_crash_the_committed_frontier_says_where_to_go_on(
    adapter: Adapter, builder: ChangeBuilder
) -> None:
    destination = opened(adapter)
    first = insert_items(builder, 0, 5)
    deliver(destination, builder.frontier, [first])
    reached = builder.frontier
    second = insert_items(builder, 5, 5)

    destination = opened(adapter)
    if destination.capabilities.exactly_once:
        # It remembers, so nobody sends the first batch again.
        assert destination.committed() == reached
        deliver(destination, builder.frontier, [second])
        assert_delivered(adapter, reference(first, second))
    else:
        # The log's reader entry may be older than the delivery: once more, whole and in order.
        assert destination.committed() is None
        deliver(destination, builder.frontier, [first, second])
        assert_delivered(adapter, reference(first, first, second))


def test_a_stale_driver_is_fenced(adapter: Adapter, builder: ChangeBuilder) -> None:
    stale = opened(adapter)
    first = insert_items(builder, 0, 2)
    deliver(stale, builder.frontier, [first])
    second = insert_items(builder, 2, 2)
    receipt = stale.task_writer().write([second])

    current = opened(adapter)
    if not current.capabilities.remembers:
        # Nothing is stored that could tell two drivers apart: the lock in the source keeps them
        # apart, and a stale one can only repeat.
        stale.commit([receipt], builder.frontier)
        assert_delivered(adapter, reference(first, second))
        return
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([receipt], builder.frontier)
    deliver(current, builder.frontier, [second])
    for frontier in (builder.frontier, Frontier(2**40, 2**40)):
        with pytest.raises(Fenced, match="taken over"):
            stale.commit([], frontier)
    assert_delivered(adapter, reference(first, second))
    assert current.committed() == builder.frontier


def test_unset_is_not_null(adapter: Adapter, builder: ChangeBuilder) -> None:
    with builder.transaction():
        builder.insert(NOTES, "1", "long")
        builder.update(NOTES, "1", UNSET)
        builder.update(NOTES, "1", None)
        builder.update(NOTES, "2", UNSET, key=["1", None])
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        assert _rows(adapter) == [
            ("insert", {"id": "1", "body": "long"}, None),
            ("update", {"id": "1"}, None),
            ("update", {"id": "1", "body": None}, None),
            ("update", {"id": "2"}, {"id": "1"}),
        ]


def test_an_unset_column_comes_from_a_full_old_row(
    adapter: Adapter, builder: ChangeBuilder
) -> None:
    with builder.transaction():
        builder.update(LOOSE, "x", UNSET, full=["w", "long"])
        builder.update(LOOSE, "y", UNSET, full=["x", None])
        builder.delete(LOOSE, full=["y", None])
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        assert _rows(adapter) == [
            ("update", {"a": "x", "b": "long"}, {"a": "w", "b": "long"}),
            ("update", {"a": "y", "b": None}, {"a": "x", "b": None}),
            ("delete", None, {"a": "y", "b": None}),
        ]


def test_key_changes_and_deletes_carry_the_old_identity(
    adapter: Adapter, builder: ChangeBuilder
) -> None:
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.update(ITEMS, "2", "a", key=["1", None])
        builder.delete(ITEMS, key=["2", None])
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        assert _rows(adapter) == [
            ("insert", {"id": "1", "name": "a"}, None),
            ("update", {"id": "2", "name": "a"}, {"id": "1"}),
            ("delete", None, {"id": "2"}),
        ]


def test_truncate_of_several_tables_stands_between_their_rows(
    adapter: Adapter, builder: ChangeBuilder
) -> None:
    with builder.transaction():
        builder.insert(ITEMS, "1", "gone")
        builder.truncate(ITEMS, NOTES, LOOSE, restart=True, cascade=True)
        builder.insert(ITEMS, "2", "stays")
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        assert [(c.op, len(c.tables)) for c in adapter.delivered()] == [
            ("insert", 1),
            ("truncate", 3),
            ("insert", 1),
        ]


def test_a_table_without_columns(adapter: Adapter, builder: ChangeBuilder) -> None:
    with builder.transaction():
        builder.insert(BARE)
        builder.insert(BARE)
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        assert _rows(adapter) == [("insert", {}, None)] * 2


@pytest.mark.parametrize(
    ("schema", "name", "column"),
    [
        ("Sales", "Order Items", "Unit Price"),
        ("public", 'quo"ted\\', 'a"b\\c'),
        ("größe", "日本語の表", "列名"),
        ("..", "../../etc/passwd", "../x"),
        ("a.b", "c", "x.y"),
        ("_hidden", "%2e~", "{}[],:"),
        ("表" * 21, "表" * 21, "列" * 21),
    ],
)
def test_names_of_all_kinds(
    adapter: Adapter, builder: ChangeBuilder, schema: str, name: str, column: str
) -> None:
    odd = table(name, Column(column, "text", key=True), schema=schema, oid=30_001)
    like = table(f"{name}2"[:60], Column(column, "text", key=True), schema=schema, oid=30_002)
    with builder.transaction():
        builder.insert(odd, "v")
        builder.insert(like, "w")
        builder.delete(odd, key=["v"])
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        assert adapter.delivered()[0].tables == ((schema, name),)
        assert adapter.delivered()[0].new == {column: "v"}


def test_texts_of_all_kinds(adapter: Adapter, builder: ChangeBuilder) -> None:
    texts = [
        "",
        " ",
        'a"b',
        "back\\slash",
        "\t\r\n\b\f\x01\x1f\x7f",
        "é日本🎉",
        "null",
        "'",
        "\u2028",
    ]
    with builder.transaction():
        for number, text in enumerate(texts):
            builder.insert(ITEMS, str(number), text)
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        assert [change.new and change.new["name"] for change in adapter.delivered()] == texts


def test_a_value_of_five_megabytes(adapter: Adapter, builder: ChangeBuilder) -> None:
    huge = "x\ny" * (5 * 2**20 // 3)
    with builder.transaction():
        builder.insert(ITEMS, "1", huge)
        builder.insert(ITEMS, "2", "small")
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert adapter.count() == 2
    if adapter.keeps:
        first = adapter.delivered()[0].new
        assert first is not None
        assert first["name"] == huge


def test_messages(adapter: Adapter, builder: ChangeBuilder) -> None:
    with builder.transaction():
        builder.message("audit", b"within")
        builder.insert(ITEMS, "1", "a")
    builder.message("beat", "außen".encode(), transactional=False)
    with builder.transaction():
        builder.insert(ITEMS, "2", "b")
    changes = builder.cut()
    deliver(opened(adapter), builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    if adapter.keeps:
        found = [(c.prefix, c.content) for c in adapter.delivered() if c.op == "message"]
        assert found == [("audit", b"within"), ("beat", "außen".encode())]


def test_a_schema_change_between_rows(adapter: Adapter, builder: ChangeBuilder) -> None:
    wider = table("items", *ITEMS.columns, Column("price", "text"))
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(wider, "2", "b", "1.5")
        builder.update(wider, "1", "a", None)
    first = builder.cut()
    with builder.transaction():
        builder.insert(wider, "3", "c", "2")
    second = builder.cut()
    deliver(opened(adapter), builder.frontier, [first, second])
    assert_delivered(adapter, reference(first, second))
    if adapter.keeps:
        news = [change.new for change in adapter.delivered()]
        assert news == [
            {"id": "1", "name": "a"},
            {"id": "2", "name": "b", "price": "1.5"},
            {"id": "1", "name": "a", "price": None},
            {"id": "3", "name": "c", "price": "2"},
        ]


def test_copied_rows_by_chunk(adapter: Adapter, builder: ChangeBuilder) -> None:
    items = _described(builder)
    destination = opened(adapter)
    destination.truncate_table(items)
    chunks = {"(0,9)": ["1", "2"], "(10,19)": ["3"]}
    for chunk in ("(0,9)", "(10,19)", "(0,9)"):
        ids = chunks[chunk]
        columns = (pa.array(ids), pa.array([None] * len(ids), pa.string()))
        destination.write_table_rows(TableRows(items, columns, Frontier(0x50, 0x58)), chunk)
    if not adapter.keeps:
        assert adapter.count() == 5
        return
    ids = sorted(str(row["id"]) for row in adapter.copied(items))
    assert ids == (["1", "2", "3"] if adapter.chunk_stands_once else ["1", "1", "2", "2", "3"])
    assert all(row["name"] is None for row in adapter.copied(items))
    assert_delivered(adapter, [])


def _described(builder: ChangeBuilder) -> TableSchema:
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    return builder.cut().tables[0].table


def test_the_suite_covers_every_destination_that_is_shipped() -> None:
    shipped = {"memory", "discard", "stdout", "files"}
    assert {name.partition("-")[0] for name in ADAPTERS} == shipped
