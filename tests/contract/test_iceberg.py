"""The contract suite on `iceberg`: real Iceberg tables in a folder, read back by DuckDB."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from pyiceberg.table import Table

from penstock.destination.contract import Destination
from penstock.destination.families.target import Target
from penstock.destination.iceberg.catalog import TableCatalog, identifier
from penstock.destination.iceberg.columns import field_ids
from penstock.destination.iceberg.destination import IcebergDestination
from penstock.destination.iceberg.ledger import NAMESPACE, IcebergControlTable
from penstock.destination.iceberg.options import IcebergOptions
from penstock.destination.iceberg.snapshots import entries_of
from penstock.model.errors import DestinationError, DestinationUnavailable, Fenced, TableRefused
from penstock.model.lsn import Frontier
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TypeName
from penstock.model.watermarks import Watermarks
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen
from penstock.testing.change_builder import UNSET, ChangeBuilder
from penstock.testing.contract.batches import BatchTests
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
    expect_parked_keys_kept,
    expect_rows_once_around_another_commit,
    expect_tables_asked_once,
    expect_tables_told_apart,
    items_with,
)
from tests.lake_rows import IcebergReader
from tests.loopback_server import free_ports
from tests.objects_server import ObjectServer

PIPELINE = "shop"


class IcebergAdapter(Adapter):
    keeps: ClassVar[Keeps] = "rows"
    keeps_messages = False
    follows_columns = False

    def __init__(self, folder: Path, deletes: str = "equality", **options: Any) -> None:
        place: dict[str, Any] = {
            "catalog_file": str(folder / "catalog.db"),
            "warehouse": str(folder / "lake"),
        }
        self.options = IcebergOptions.model_validate(
            {**place, "deletes": deletes, "maintenance": {"every": "never"}, **options}
        )
        self._made: list[Destination] = []
        self._reader = IcebergReader(self.options)

    def make(self) -> Destination:
        self._made.append(IcebergDestination(self.options, PIPELINE))
        return self._made[-1]

    def table(self, name: TableName) -> Table:
        found = TableCatalog(self.options).find(identifier(*name))
        assert found is not None
        return found

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, self._reader.texts(name)))

    def close(self) -> None:
        self._reader.close()
        for destination in self._made:
            destination.close()


class ByPosition(IcebergAdapter):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "position")


class Partitioned(IcebergAdapter):
    def __init__(self, folder: Path, deletes: str = "equality", **options: Any) -> None:
        by = {
            "public.items": ["bucket(3, id)"],
            "public.notes": ["truncate(2, id)", "body"],
            "public.loose": ["a"],
            "public.pair": ["bucket(2, a)", "x"],
        }
        super().__init__(folder, deletes, partition=by, **options)


class PartitionedByPosition(Partitioned):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "position")


class InAnObjectStore(IcebergAdapter):
    """Warehouse and stage: driver and executors share no folder. Read back by pyiceberg."""

    def __init__(self, folder: Path, objects: ObjectServer, **options: Any) -> None:
        to_store = objects.direct_options
        super().__init__(
            folder,
            "position",
            warehouse=objects.place(),
            properties={
                "s3.endpoint": to_store["endpoint"],
                "s3.access-key-id": to_store["access_key_id"],
                "s3.secret-access-key": to_store["secret_access_key"],
                "s3.region": to_store["region"],
            },
            stage=objects.place(),
            stage_options=to_store,
            **options,
        )

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        found = self.table(name).scan().to_arrow().to_pylist()
        return Counter(
            frozen({key: None if value is None else str(value) for key, value in row.items()})
            for row in found
        )


class IcebergChanges(ChangeTables, IcebergAdapter):
    keeps: ClassVar[Keeps] = "changes"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, mode="append")

    def change_tables(self) -> Iterator[tuple[TableName, list[dict[str, Any]]]]:
        catalog = TableCatalog(self.options).catalog
        for (namespace,) in catalog.list_namespaces():
            schema = namespace.replace("~2e", ".")
            for _, name in catalog.list_tables(namespace):
                if namespace != NAMESPACE:
                    yield (schema, name), self._reader.texts((schema, name))


@pytest.mark.release  # more than half a minute; `delta` has the same base
class TestIceberg(DestinationContract):
    @pytest.fixture(
        params=[IcebergAdapter, ByPosition, Partitioned, PartitionedByPosition, IcebergChanges]
    )
    def adapter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
        adapter: IcebergAdapter = request.param(tmp_path)
        yield adapter
        adapter.close()


class TestIcebergInAnObjectStore(BatchTests):
    @pytest.fixture
    def adapter(self, object_server: ObjectServer, tmp_path: Path) -> Iterator[Adapter]:
        adapter = InAnObjectStore(tmp_path, object_server)
        yield adapter
        adapter.close()
        assert [path.name for path in tmp_path.iterdir()] in ([], ["catalog.db"])

    @pytest.fixture
    def builder(self) -> ChangeBuilder:
        return ChangeBuilder()


@pytest.fixture
def adapter(tmp_path: Path) -> Iterator[IcebergAdapter]:
    adapter = IcebergAdapter(tmp_path)
    yield adapter
    adapter.close()


@pytest.mark.parametrize("tables", [1, 2])
def test_a_driver_dies_among_the_tables_of_a_batch(
    adapter: IcebergAdapter, tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_tables_told_apart(adapter, ChangeBuilder(), tables, monkeypatch)


def test_a_stale_driver_is_refused_by_each_table(
    adapter: IcebergAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked at the control table before another one took over."""
    builder = ChangeBuilder()
    stale = opened(adapter)
    assert isinstance(stale, IcebergDestination)
    changes = insert_items(builder, 0, 2)
    monkeypatch.setattr(stale.ledger, "write", lambda *_: None)
    current = opened(adapter)
    receipt = stale.writer().write([changes])
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([receipt], Watermarks(builder.frontier))
    deliver(current, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def test_another_driver_takes_over_in_the_middle_of_a_commit(
    adapter: IcebergAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loaded the table before the other one opened, and commits after it."""
    builder = ChangeBuilder()
    stale = opened(adapter)
    assert isinstance(stale, IcebergDestination)
    changes = insert_items(builder, 0, 2)
    receipt = stale.writer().write([changes])
    commits, others = stale._transactions, list[Destination]()
    commit, once = commits.commit, threading.Lock()

    def slow(*arguments: Any) -> None:
        # Tables are committed side by side: one of them opens the other driver.
        with once:
            if not others:
                others.append(opened(adapter))
        commit(*arguments)

    monkeypatch.setattr(commits, "commit", slow)
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([receipt], Watermarks(builder.frontier))
    assert not adapter.rows((ITEMS.schema, ITEMS.name))
    deliver(others[0], builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def test_positions_of_a_pipeline_that_was_destroyed_mean_nothing(adapter: IcebergAdapter) -> None:
    destination = opened(adapter)
    builder = ChangeBuilder()
    deliver(destination, Frontier(2**40, 2**40), [insert_items(builder, 0, 2)])
    assert adapter.make().forget()
    again = opened(adapter)
    assert again.committed() is None
    changes = insert_items(builder, 7, 1)
    deliver(again, Frontier(0x10, 0x10), [changes])
    assert adapter.rows((ITEMS.schema, ITEMS.name)).total() == 3


def test_a_row_that_should_be_there_and_is_not(tmp_path: Path) -> None:
    """By position every row is looked up; by equality those of which not all is sent."""
    for deletes, row in (("position", ("1", "new")), ("equality", ("1", UNSET))):
        adapter = IcebergAdapter(tmp_path / deletes, deletes)
        destination = opened(adapter)
        builder = ChangeBuilder()
        with builder.transaction():
            builder.update(ITEMS, *row)
        with pytest.raises(TableRefused, match=r"public\.items: 1 rows that change are not there"):
            deliver(destination, builder.frontier, [builder.cut()])
        adapter.close()


@pytest.mark.parametrize("deletes", ["equality", "position"])
def test_maintenance_leaves_the_rows_and_few_files(tmp_path: Path, deletes: str) -> None:
    adapter = IcebergAdapter(
        tmp_path, deletes, maintenance={"every": "1ms", "keep_snapshots": "1ms"}
    )
    destination = opened(adapter)
    assert isinstance(destination, IcebergDestination)
    builder = ChangeBuilder()
    runs = []
    for number in range(4):
        with builder.transaction():
            builder.insert(ITEMS, str(number), "new")
            if number:
                builder.update(ITEMS, str(number - 1), "changed")
            builder.insert(NOTES, str(number), None)
            builder.insert(LOOSE, "equal", None)
        runs.append(builder.cut())
        deliver(destination, builder.frontier, [runs[-1]])
        destination._maintenance.wait()
        assert_delivered(adapter, reference(*runs))
    table = adapter.table((ITEMS.schema, ITEMS.name))
    assert len(entries_of(table)) <= 3
    assert len(table.metadata.snapshots) <= 2
    files = list((tmp_path / "lake" / "public" / "items" / "data").iterdir())
    assert len(files) <= 3, "what no snapshot names is removed"
    adapter.close()


def test_a_table_follows_schema_changes_and_nothing_is_done_twice(adapter: IcebergAdapter) -> None:
    """Names are exchanged, types widened and changed, a column gets a value for older rows, and
    the table another name.
    """
    destination = opened(adapter)
    assert isinstance(destination, IcebergDestination)
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(ITEMS, "2", None)
    deliver(destination, builder.frontier, [builder.cut()])
    with builder.transaction():
        builder.update(ITEMS, "1", "7")
    deliver(destination, builder.frontier, [builder.cut()])
    text = TypeName("pg_catalog", "text")
    number, list_of = TypeName("pg_catalog", "bigint"), replace(text, is_array=True)
    short = TypeName("pg_catalog", "integer")
    states = [
        definition(ITEMS),
        items_with((1, "id", number, None), (2, "name", text, None), (3, "b", short, None),
                 name="items"),
        items_with((1, "id", number, None), (2, "b", text, None), (3, "name", number, None),
                 name="items"),
        items_with((1, "id", number, None), (2, "b", text, None), (4, "c", list_of, '{"{x,NULL}"}'),
                 name="It ems"),
        items_with((1, "id", number, None), (2, "b", short, None), (4, "c", list_of, None),
                 name="It ems"),
    ]  # fmt: skip
    ids = []
    for before, after in pairwise(states):
        for _ in range(2):  # a crash may make it happen again
            destination.alter(TableChange(before, after), Target.of(before), Target.of(after))
        ids.append(field_ids(adapter.table((after.schema, after.name)).schema()))
    assert ids == [
        {"id": 1, "name": 2, "b": 3},
        {"id": 1, "b": 2, "name": 3},
        {"id": 1, "b": 2, "c": 4},
        {"id": 1, "b": 4098, "c": 4},
    ]
    rows: list[dict[str, str | None]] = [
        {"id": "1", "b": "7", "c": "[x, NULL]"},
        {"id": "2", "b": None, "c": "[x, NULL]"},
    ]
    assert adapter.rows(("public", "It ems")) == Counter(map(frozen, rows))
    assert TableCatalog(adapter.options).find(("public", "items")) is None


def test_tables_in_an_object_store(object_server: ObjectServer, tmp_path: Path) -> None:
    """A copy, changes and maintenance; pyiceberg's own reader reads them."""
    maintenance = {"every": "1ms", "keep_snapshots": "1ms"}
    adapter = InAnObjectStore(tmp_path, object_server, maintenance=maintenance)
    destination = opened(adapter)
    assert isinstance(destination, IcebergDestination)
    destination.truncate_table(definition(ITEMS))
    chunk = ChunkRows(ITEMS, "0", [("100", "copied"), ("101", "copied")], Frontier(1, 1))
    copy_chunks(destination, chunk)
    builder = ChangeBuilder()
    insert = insert_items(builder, 0, 3)
    deliver(destination, builder.frontier, [insert])
    with builder.transaction():
        builder.update(ITEMS, "100", "changed")
        builder.delete(ITEMS, key=["1", None])
    changes, end = builder.cut(), builder.frontier
    deliver(destination, end, [changes])
    destination._maintenance.wait()
    rows = adapter.table((ITEMS.schema, ITEMS.name)).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [
        (0, "renamed"),
        (2, "renamed"),
        (100, "changed"),
        (101, "copied"),
    ]
    assert adapter.make().committed() == Watermarks(end)
    adapter.close()


def test_a_catalogue_that_does_not_answer_and_options_that_contradict(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"postgresql://user:hidden-word@127.0.0.1:{port}/lake"
    options = {"catalog": url, "warehouse": str(tmp_path / "lake")}
    destination = IcebergDestination(IcebergOptions.model_validate(options), PIPELINE)
    with pytest.raises(DestinationUnavailable, match="the catalogue") as refused:
        destination.check()
    assert "hidden-word" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [], "check makes nothing"
    wrong = [
        ({"warehouse": "/lake"}, "say one of"),
        ({**options, "catalog_file": "x.db"}, "say one of"),
        ({"catalog_file": "x.db"}, "warehouse"),
        ({"catalog_file": "x.db", "warehouse": "s3://bucket/lake"}, "stage"),
        ({"rest": "catalog:8181", "stage": "/stage"}, "URL"),
    ]
    for given, told in wrong:
        with pytest.raises(ValidationError, match=told):
            IcebergOptions.model_validate(given)


@pytest.mark.parametrize(
    ("status", "passes"), [(403, False), (429, True), (500, True), (503, True), (504, True)]
)
def test_a_catalogue_service_that_is_overloaded_is_waited_for(status: int, passes: bool) -> None:
    """Inside of a batch anything else sets the table aside."""

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_config = self.path.startswith("/v1/config")
            told = {"message": "as the test wants it", "type": "Some", "code": status}
            text = {"defaults": {}, "overrides": {}} if is_config else {"error": told}
            body = json.dumps(text).encode()
            self.send_response(200 if is_config else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        rest = {"rest": f"http://127.0.0.1:{server.server_port}", "stage": "/stage"}
        tables = TableCatalog(IcebergOptions.model_validate(rest))
        with pytest.raises(DestinationError, match="as the test wants it") as told:
            tables.find(("public", "items"))
        assert isinstance(told.value, DestinationUnavailable) == passes
        tables.close()
        server.shutdown()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.release)])
def test_a_driver_dies_anywhere_in_a_transaction_that_changes_tables(
    tmp_path: Path, every: int
) -> None:
    expect_once_wherever_it_dies(IcebergAdapter, tmp_path, every=every)


def test_tables_are_not_asked_again_what_their_driver_knows(
    adapter: IcebergAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_tables_asked_once(adapter, monkeypatch)


class _ReadBeside(IcebergControlTable):
    """Another thread puts what it has read of an older snapshot down, right behind a look."""

    now: tuple[int, dict[str, str]] = (0, {})
    older: tuple[int, dict[str, str]] | None = None

    @property
    def _read(self) -> tuple[int, dict[str, str]]:
        found = self.now
        self.now, self.older = self.older or self.now, None
        return found

    @_read.setter
    def _read(self, value: tuple[int, dict[str, str]]) -> None:
        self.now = value


def test_who_reads_an_older_snapshot_of_the_ledger_takes_no_notes_from_who_writes(
    adapter: IcebergAdapter,
) -> None:
    destination = opened(adapter)
    assert isinstance(destination, IcebergDestination)
    ledger = destination.ledger
    ledger.__class__ = _ReadBeside
    assert isinstance(ledger, _ReadBeside)
    ledger.read()
    older = ledger.now
    ledger.write(destination._driver, {"copy/1/": "first"})
    ledger.read()
    ledger.older = older
    ledger.write(destination._driver, {"copy/2/": "second"})
    assert ledger.read("copy/") == {"copy/1/": "first", "copy/2/": "second"}


def test_a_name_that_another_table_has_is_refused(adapter: IcebergAdapter) -> None:
    def drop(name: str) -> None:
        with TableCatalog(adapter.options).catalog as catalog:
            catalog.drop_table(("public", name))

    expect_name_refused_that_is_taken(adapter, drop)


def test_a_name_that_a_table_of_others_has_is_refused(adapter: IcebergAdapter) -> None:
    expect_table_of_others_left(adapter)


def test_chunks_come_again_in_another_order(
    adapter: IcebergAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_chunks_once_in_any_order(adapter, monkeypatch)


def test_another_commit_comes_between_two_tries_of_a_schema_change(
    adapter: IcebergAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_rows_once_around_another_commit(adapter, monkeypatch)


def test_rows_that_are_to_be_read_again_are_noted_before_their_table_is_committed(
    adapter: IcebergAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_parked_keys_kept(adapter, monkeypatch)


def test_a_commit_whose_answer_was_lost_hides_no_later_position(
    adapter: IcebergAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_later_positions_kept(adapter, monkeypatch)


def test_a_table_that_somebody_removed_is_made_again_when_it_is_copied(
    adapter: IcebergAdapter,
) -> None:
    expect_copied_anew(adapter)
