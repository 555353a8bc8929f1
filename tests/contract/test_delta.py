"""The contract suite on `delta`: real Delta tables in a folder, read back by pyarrow."""

from __future__ import annotations

import json
import re
import resource
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import ValidationError

from penstock.destination.contract import Destination, SchemaChange
from penstock.destination.delta.destination import DeltaDestination
from penstock.destination.delta.options import DeltaOptions
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.object_stage import stage_owner
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.destination.families.staged_merge.stage import FolderStage
from penstock.destination.families.table_folders import folder_name
from penstock.destination.families.target import Target
from penstock.model.errors import DestinationUnavailable, Fenced, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TypeName
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import Bucket
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.chunk_rows import ChunkRows, copy_chunks
from penstock.testing.contract.deliveries import (
    ITEMS,
    LOOSE,
    NOTES,
    assert_delivered,
    definition,
    deliver,
    insert_items,
    opened,
    reference,
)
from tests.lake_alterations import (
    expect_name_refused_that_is_taken,
    expect_once_wherever_it_dies,
    expect_table_of_others_left,
)
from tests.lake_changes import ChangeTables, Keeps
from tests.lake_drivers import (
    expect_chunks_once_in_any_order,
    expect_copied_anew,
    expect_later_positions_kept,
    expect_others_added_up,
    expect_parked_keys_kept,
    expect_rows_once_around_another_commit,
    expect_staged_in_a_bucket,
    expect_tables_asked_once,
    expect_tables_told_apart,
    items_with,
)
from tests.objects_server import ObjectServer

PIPELINE = "shop"


def delta_rows(folder: Path, name: TableName) -> list[dict[str, Any]]:
    """The rows of a table as texts."""
    path = folder / folder_name(name[0]) / folder_name(name[1])
    return texts_of(DeltaTable(str(path)))


def texts_of(table: DeltaTable) -> list[dict[str, Any]]:
    """The same, whatever it is in."""
    rows = table.to_pyarrow_table()
    columns = [_texts(rows[name]) for name in rows.column_names]
    found: list[dict[str, Any]] = pa.table(columns, names=rows.column_names).to_pylist()
    return found


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if not pa.types.is_list(column.type):
        return column.cast(pa.string())
    texts = [None if row is None else f"[{', '.join(row)}]" for row in column.to_pylist()]
    return pa.array(texts, pa.string())


def _name(folder: Path) -> str:
    """What a folder is called after."""
    codes = re.compile("(?:~[0-9a-f]{2})+")
    return codes.sub(lambda found: bytes.fromhex(found[0].replace("~", "")).decode(), folder.name)


class DeltaAdapter(Adapter):
    keeps: ClassVar[Keeps] = "rows"
    keeps_messages = False
    follows_columns = False
    takes_keyless = False

    def __init__(self, folder: Path, mode: str = "merge", **options: Any) -> None:
        self.folder = folder
        self.options = DeltaOptions.model_validate(
            {"path": str(folder), "mode": mode, "maintenance": {"every": "never"}, **options}
        )
        self._made: list[Destination] = []

    def make(self) -> Destination:
        self._made.append(DeltaDestination(self.options, PIPELINE))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, delta_rows(self.folder, name)))

    def close(self) -> None:
        for destination in self._made:
            destination.close()


class DeltaChanges(ChangeTables, DeltaAdapter):
    keeps: ClassVar[Keeps] = "changes"
    takes_keyless = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "append")

    def change_tables(self) -> Iterator[tuple[TableName, list[dict[str, Any]]]]:
        for log in self.folder.glob("*/*/_delta_log"):
            name = _name(log.parent.parent), _name(log.parent)
            if name[0] == "_penstock":
                continue
            yield name, delta_rows(self.folder, name)


class TestDelta(DestinationContract):
    @pytest.fixture(params=[DeltaAdapter, DeltaChanges], ids=["merge", "append"])
    def adapter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
        adapter: DeltaAdapter = request.param(tmp_path)
        yield adapter
        adapter.close()


@pytest.fixture
def adapter(tmp_path: Path) -> DeltaAdapter:
    return DeltaAdapter(tmp_path)


@pytest.fixture(params=[DeltaAdapter, DeltaChanges], ids=["merge", "append"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaAdapter:
    """In each of the modes."""
    made: DeltaAdapter = request.param(tmp_path)
    return made


@pytest.mark.parametrize("tables", [1, 2])
def test_a_driver_dies_among_the_tables_of_a_batch(
    either: DeltaAdapter, tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ChangeBuilder(leave_out=[LOOSE])
    expect_tables_told_apart(either, builder, tables, monkeypatch)


def test_a_stale_driver_is_refused_by_each_table(
    either: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked at the control table before another one took over."""
    builder = ChangeBuilder(leave_out=[LOOSE])
    stale = opened(either)
    assert isinstance(stale, DeltaDestination)
    changes = insert_items(builder, 0, 2)
    monkeypatch.setattr(stale.ledger, "write", lambda *_: None)
    current = opened(either)
    receipt = stale.writer().write([changes])
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([receipt], Watermarks(builder.frontier))
    deliver(current, builder.frontier, [changes])
    assert_delivered(either, reference(changes))


def test_rows_without_a_key_are_added_and_not_removed(adapter: DeltaAdapter) -> None:
    destination = opened(adapter)
    destination.prepare([definition(LOOSE)])
    builder = ChangeBuilder()
    with builder.transaction():
        for text in ("same", "same", "other"):
            builder.insert(LOOSE, text, None)
    deliver(destination, builder.frontier, [builder.cut()])
    assert adapter.rows((LOOSE.schema, LOOSE.name)).total() == 3
    with builder.transaction():
        builder.delete(LOOSE, full=["same", None])
    with pytest.raises(TableRefused, match=r"public\.loose has no key"):
        deliver(destination, builder.frontier, [builder.cut()])
    assert adapter.rows((LOOSE.schema, LOOSE.name)).total() == 3


def test_positions_of_a_pipeline_that_was_destroyed_mean_nothing(adapter: DeltaAdapter) -> None:
    destination = opened(adapter)
    builder = ChangeBuilder(leave_out=[LOOSE])
    deliver(destination, Frontier(2**40, 2**40), [insert_items(builder, 0, 2)])
    assert adapter.make().forget()
    again = opened(adapter)
    assert again.committed() is None
    changes = insert_items(builder, 7, 1)
    deliver(again, Frontier(0x10, 0x10), [changes])
    assert adapter.rows((ITEMS.schema, ITEMS.name)).total() == 3


def test_a_stale_driver_that_slept_leaves_the_position_of_the_next_one(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps before it notes a commit without rows. The next one notes a later one meanwhile."""
    stale, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    deliver(stale, builder.frontier, [insert_items(builder, 0, 1)])
    earlier, later = Frontier(2**40, 2**40), Frontier(2**41, 2**41)
    note, others = FolderStage.note, list[Destination]()

    def sleeping(*told: Any) -> None:
        if not others:
            others.append(adapter.make())
            others[0].open()
            others[0].prepare([definition(ITEMS), definition(NOTES)])
            deliver(others[0], later, [])
        note(*told)

    monkeypatch.setattr(FolderStage, "note", sleeping)
    with pytest.raises(Fenced, match="taken over"):
        deliver(stale, earlier, [])
    assert adapter.make().committed() == Watermarks(later)


def test_a_ledger_that_was_removed_leaves_no_driver_behind(adapter: DeltaAdapter) -> None:
    for _ in range(3):
        opened(adapter).close()
    for folder in adapter.folder.iterdir():
        if folder.name != "_penstock_stage":
            shutil.rmtree(folder)
    destination = opened(adapter)
    assert destination.committed() is None
    deliver(destination, Frontier(2**40, 2**40), [])
    assert destination.committed() == Watermarks(Frontier(2**40, 2**40))


def test_a_stage_in_an_object_store(object_server: ObjectServer, tmp_path: Path) -> None:
    stage, options = object_server.place(), object_server.direct_options
    adapter = DeltaAdapter(tmp_path, stage=stage, stage_options=options)
    owner = stage_owner("delta")
    expect_staged_in_a_bucket(adapter, Bucket(f"{stage}/{PIPELINE}", options, owner))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_penstock", "public"]
    adapter.close()


@pytest.mark.parametrize("stage", ["ftp://host/stage", "s3://", "gs:///"])
def test_a_stage_is_a_folder_or_a_bucket(stage: str) -> None:
    with pytest.raises(ValidationError, match="a folder, or a bucket such as"):
        DeltaOptions.model_validate({"path": "/lake", "stage": stage})


def test_a_table_is_read_from_a_checkpoint_that_is_not_long_ago(adapter: DeltaAdapter) -> None:
    """With each batch its log is read several times, from the last checkpoint on."""
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    for number in range(22):
        deliver(destination, builder.frontier, [insert_items(builder, number, 1)])
    for place in ("public/items", "_penstock/shop"):
        last = adapter.folder / place / "_delta_log" / "_last_checkpoint"
        assert json.loads(last.read_text())["version"] == 19, place


def test_maintenance_leaves_the_rows(adapter: DeltaAdapter) -> None:
    destination = opened(adapter)
    assert isinstance(destination, DeltaDestination)
    destination.maintenance_every = 0.0
    builder = ChangeBuilder(leave_out=[LOOSE])
    runs = []
    for number in range(3):
        runs.append(insert_items(builder, number, 1))
        deliver(destination, builder.frontier, [runs[-1]])
        destination._maintenance.wait()
    assert_delivered(adapter, reference(*runs))
    table = DeltaTable(str(adapter.folder / "public" / "items"))
    assert len(table.file_uris()) == 1


def test_tables_are_merged_side_by_side(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them wait for each other."""
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    assert isinstance(destination, DeltaDestination)
    apply, both = destination.apply, threading.Barrier(2, timeout=60)

    def waiting(rows: MergedRows, at: Mark) -> Any:
        both.wait()
        return apply(rows, at)

    monkeypatch.setattr(destination, "apply", waiting)
    changes = insert_items(builder, 0, 2)
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def _files(adapter: DeltaAdapter, name: str) -> int:
    return len(DeltaTable(str(adapter.folder / "public" / name)).file_uris())


def test_a_table_that_fails_keeps_no_other_one_from_its_maintenance(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it has its turn again, also where nothing is written to it any more."""
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    assert isinstance(destination, DeltaDestination)
    for number in range(3):
        deliver(destination, builder.frontier, [insert_items(builder, number, 1)])
    maintain, failed = destination.maintain, list[Target]()

    def failing(target: Target) -> None:
        if not failed:
            failed.append(target)
            raise RuntimeError("as the test wants it")
        maintain(target)

    monkeypatch.setattr(destination, "maintain", failing)
    destination.maintenance_every = 0.0
    deliver(destination, Frontier(2**40, 2**40), [])
    destination._maintenance.wait()
    names = [failed[0].name, *({"items", "notes"} - {failed[0].name})]
    assert [_files(adapter, name) for name in names] == [3, 1]
    deliver(destination, Frontier(2**41, 2**41), [])
    destination._maintenance.wait()
    assert [_files(adapter, name) for name in names] == [1, 1]


def test_what_another_driver_wrote_to_is_maintained(adapter: DeltaAdapter) -> None:
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    for number in range(3):
        deliver(destination, builder.frontier, [insert_items(builder, number, 1)])
    again = opened(adapter)
    assert isinstance(again, DeltaDestination)
    again.maintenance_every = 0.0
    deliver(again, Frontier(2**40, 2**40), [])
    again._maintenance.wait()
    assert _files(adapter, "items") == 1


def test_a_table_follows_what_delta_rs_cannot_change_and_nothing_is_done_twice(
    adapter: DeltaAdapter,
) -> None:
    """Names are exchanged, a column gets a value for older rows, and the table another name."""
    destination = opened(adapter)
    assert isinstance(destination, DeltaDestination)
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(ITEMS, "2", None)
    deliver(destination, builder.frontier, [builder.cut()])
    text = TypeName("pg_catalog", "text")
    number, list_of = TypeName("pg_catalog", "bigint"), replace(text, is_array=True)
    states = [
        definition(ITEMS),
        items_with((1, "id", number, None), (2, "name", text, None), (3, "b", text, None),
                 name="items"),
        items_with((1, "id", number, None), (2, "b", text, None), (3, "name", text, None),
                 name="items"),
        items_with((1, "id", number, None), (2, "b", text, None), (4, "c", list_of, '{"{x,NULL}"}'),
                 name="It ems"),
    ]  # fmt: skip
    for before, after in pairwise(states):
        for _ in range(2):  # a crash may make it happen again
            destination.alter(TableChange(before, after), Target.of(before), Target.of(after))
    rows = DeltaTable(str(adapter.folder / "public" / "It~20ems")).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=str) == [
        {"id": 1, "b": "a", "c": ["x", None]},
        {"id": 2, "b": None, "c": ["x", None]},
    ]
    assert not (adapter.folder / "public" / "items").exists()


def test_a_driver_dies_anywhere_in_a_transaction_that_changes_tables(tmp_path: Path) -> None:
    expect_once_wherever_it_dies(DeltaAdapter, tmp_path)


def test_tables_are_not_asked_again_what_their_driver_knows(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_tables_asked_once(adapter, monkeypatch)


def test_a_name_that_another_table_has_is_refused(adapter: DeltaAdapter) -> None:
    expect_name_refused_that_is_taken(
        adapter, lambda name: shutil.rmtree(adapter.folder / "public" / name)
    )


def test_a_name_that_a_table_of_others_has_is_refused(adapter: DeltaAdapter) -> None:
    expect_table_of_others_left(adapter)


def test_a_folder_of_the_new_name_is_left_when_the_table_is_copied_anew(
    adapter: DeltaAdapter,
) -> None:
    """It is no Delta table at all: the rename is refused, and what resync does is no reason to
    remove it.
    """
    theirs = adapter.folder / "public" / "goods" / "theirs.csv"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("7,theirs")
    destination = opened(adapter)
    assert isinstance(destination, DeltaDestination)
    before = definition(ITEMS)
    after = replace(before, name="goods")
    change = SchemaChange(Position(1, 0), 0, "ALTER TABLE", (TableChange(before, after),))
    with pytest.raises(TableRefused, match="is there already"):
        destination.commit_sections([change], Watermarks(Frontier(2, 2)))
    destination.fit_table(after, ())
    assert theirs.read_text() == "7,theirs"
    assert not (adapter.folder / "public" / "items").exists()


def test_chunks_come_again_in_another_order(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_chunks_once_in_any_order(adapter, monkeypatch)


def test_another_commit_comes_between_two_tries_of_a_schema_change(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_rows_once_around_another_commit(adapter, monkeypatch)


def test_rows_that_are_to_be_read_again_are_noted_before_their_table_is_committed(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_parked_keys_kept(adapter, monkeypatch)


def test_a_commit_whose_answer_was_lost_hides_no_later_position(
    adapter: DeltaAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_later_positions_kept(adapter, monkeypatch)


def test_a_table_that_somebody_removed_is_made_again_when_it_is_copied(
    either: DeltaAdapter,
) -> None:
    expect_copied_anew(either)


def test_a_full_disk_is_waited_for(adapter: DeltaAdapter) -> None:
    """No table is set aside: the same batch passes once there is room."""
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    changes = insert_items(builder, 0, 3)
    receipt = destination.writer().write([changes])
    with _files_of_at_most(300), pytest.raises(DestinationUnavailable, match=r"os error \d+"):
        destination.commit([receipt], Watermarks(builder.frontier))
    assert destination.committed() is None
    destination.commit([receipt], Watermarks(builder.frontier))
    assert_delivered(adapter, reference(changes))


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """The operating system lets this process write no larger ones."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("what", ["gone", "broken", "another", "lacks a column"])
def test_a_table_that_is_broken_keeps_no_other_from_being_added_up(
    adapter: DeltaAdapter, what: str
) -> None:
    folder = adapter.folder / "public" / "items"

    def harm() -> None:
        if what == "broken":
            for file in (folder / "_delta_log").iterdir():
                file.write_text("{nonsense")
            return
        rows = pa.table({"id": [1]})
        if what == "lacks a column":
            write_deltalake(str(folder), rows, mode="overwrite", schema_mode="overwrite")
            return
        shutil.rmtree(folder)
        if what == "another":
            write_deltalake(str(folder), rows)

    expect_others_added_up(adapter, harm)


@pytest.mark.parametrize("what", ["no log", "a log of nonsense"])
def test_a_table_that_is_broken_stops_no_other(adapter: DeltaAdapter, what: str) -> None:
    """It is refused when rows come to it, and made again when it is copied."""
    builder = ChangeBuilder(leave_out=[LOOSE])
    first = insert_items(builder, 0, 1)
    deliver(opened(adapter), builder.frontier, [first])
    log = adapter.folder / "public" / "items" / "_delta_log"
    if what == "no log":
        shutil.rmtree(log)
    else:
        for file in log.iterdir():
            file.write_text("{nonsense")
    destination = opened(adapter)
    assert isinstance(destination, DeltaDestination)
    assert destination.committed() == Watermarks(builder.frontier)
    with builder.transaction():
        builder.insert(NOTES, "7", "new")
    second = builder.cut()
    deliver(destination, builder.frontier, [second])
    with pytest.raises(TableRefused) as refused:
        deliver(destination, builder.frontier, [insert_items(builder, 8, 1)])
    assert refused.value.table == ITEMS.oid
    destination.fit_table(definition(ITEMS), ())
    destination.prepare([definition(ITEMS)])
    destination.truncate_table(definition(ITEMS))
    copy_chunks(destination, ChunkRows(ITEMS, "0", [("1", "copied")]))
    assert adapter.rows(("public", "items")).total() == 1
