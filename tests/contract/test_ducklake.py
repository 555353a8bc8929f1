"""The contract suite on `ducklake`, a real DuckDB, with its catalogue in a file and in Postgres."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import duckdb
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr, ValidationError

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.contract import Destination
from penstock.destination.ducklake import destination as ducklake_destination
from penstock.destination.ducklake import house_lock
from penstock.destination.ducklake import lake as lake_sessions
from penstock.destination.ducklake.destination import DucklakeDestination
from penstock.destination.ducklake.lake import Lake
from penstock.destination.ducklake.merging import merge_rows
from penstock.destination.ducklake.names import DuckLakeLatest, literal, quoted, table_name
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.destination.ducklake.tables import lake_tables
from penstock.destination.families.change_tables.latest import WindowedLatest, latest_query
from penstock.destination.families.change_tables.task_writer import source_of
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.object_stage import stage_owner
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable, Fenced
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import Bucket
from penstock.testing import Adapter, DestinationContract, FrozenRow, Row, TableName, frozen
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.batches import BatchTests
from penstock.testing.contract.chunk_rows import (
    ChunkRows,
    copy_chunks,
    write_chunks,
    write_elsewhere,
)
from penstock.testing.contract.copies import CopyTests
from penstock.testing.contract.deliveries import (
    ITEMS,
    assert_delivered,
    definition,
    deliver,
    insert_items,
    opened,
    reference,
)
from tests.fix_pipeline import wait_until
from tests.lake_changes import ChangeTables, Keeps
from tests.lake_drivers import expect_staged_in_a_bucket
from tests.loopback_server import free_ports
from tests.objects_server import ObjectServer
from tests.tcp_proxy import TcpProxy

PIPELINE = "shop"
_HIDDEN = "hidden-word"


def lake_rows(lake: Lake, name: TableName) -> list[dict[str, Any]]:
    """The rows of a table as texts."""
    with lake.session() as session:
        table = f"{quoted(name[0])}.{quoted(name[1])}"
        found = session.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {table}")
        names = [column[0] for column in found.description or []]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return [{column: row[column] for column in row if column != NO_COLUMNS} for row in rows]


class DucklakeAdapter(Adapter):
    keeps: ClassVar[Keeps] = "rows"
    keeps_messages = False
    follows_columns = False

    def __init__(
        self, folder: Path, catalog: str | None = None, mode: str = "merge", **more: Any
    ) -> None:
        place = {"catalog": catalog} if catalog else {"catalog_file": str(folder / "meta.ducklake")}
        options = {"data_path": str(folder / "data"), "maintenance": {"every": "never"}}
        self.options = DucklakeOptions.model_validate({**place, **options, "mode": mode, **more})
        self._made: list[Destination] = []
        self._reader = Lake(self.options)

    def make(self) -> Destination:
        self._made.append(DucklakeDestination(self.options, PIPELINE))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, lake_rows(self._reader, name)))

    def close(self) -> None:
        self._reader.close()
        for destination in self._made:
            destination.close()


class InAnObjectStore(DucklakeAdapter):
    """Files and stage: driver and executors share no folder."""

    def __init__(self, folder: Path, objects: ObjectServer, **more: Any) -> None:
        options = objects.direct_options
        super().__init__(folder, data_path=objects.place(), data_options=options, **more)


class DucklakeChanges(ChangeTables, DucklakeAdapter):
    keeps: ClassVar[Keeps] = "changes"

    def __init__(self, folder: Path, catalog: str | None = None) -> None:
        super().__init__(folder, catalog, "append")

    def change_tables(self) -> Iterator[tuple[TableName, list[dict[str, Any]]]]:
        with self._reader.session() as session:
            names = list(lake_tables(session))
        for name in names:
            if name[0] not in ("penstock", f"{name[0].removesuffix('_latest')}_latest"):
                yield name, lake_rows(self._reader, name)


class DucklakeLatest(DucklakeAdapter):
    """What the views over change tables show."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, None, "append")

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return super().rows((f"{name[0]}_latest", name[1]))


class WindowedDuckLake(WindowedLatest, DuckLakeLatest):
    """The query of the views that warehouses have, in DuckDB's words."""


class DucklakeWindowed(DucklakeLatest):
    """What that query finds."""

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        (destination,) = self._made[-1:]
        assert isinstance(destination, DucklakeDestination)
        (target,) = (
            each for each in destination._targets.values() if (each.schema, each.name) == name
        )
        query = latest_query(table_name(target), source_of(target), WindowedDuckLake())
        with self._reader.session() as session:
            found = session.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})")
            names = [column[0] for column in found.description or []]
            return Counter(frozen(dict(zip(names, r, strict=True))) for r in found.fetchall())


@pytest.mark.release  # a minute and a half of processor time; `delta` has the same base
class TestDucklake(DestinationContract):
    @pytest.fixture(params=["file", "postgres", "append"])
    def adapter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
        catalog = request.getfixturevalue("database") if request.param == "postgres" else None
        made = DucklakeChanges if request.param == "append" else DucklakeAdapter
        adapter = made(tmp_path, catalog)
        yield adapter
        adapter.close()


@pytest.mark.release  # half a minute of processor time
class TestDucklakeInAnObjectStore(BatchTests, CopyTests):
    @pytest.fixture
    def adapter(self, object_server: ObjectServer, tmp_path: Path) -> Iterator[Adapter]:
        adapter = InAnObjectStore(tmp_path, object_server)
        yield adapter
        adapter.close()
        assert {path.name for path in tmp_path.iterdir()} <= {"meta.ducklake"}

    @pytest.fixture
    def builder(self) -> ChangeBuilder:
        return ChangeBuilder()


def test_another_driver_takes_over_in_the_middle_of_a_commit(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = DucklakeAdapter(tmp_path, database)
    stale = opened(adapter)
    assert isinstance(stale, DucklakeDestination)
    builder = ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    receipt = stale.writer().write([changes])
    apply, others = stale.apply, list[Destination]()

    def slow(rows: MergedRows, at: Mark) -> Any:
        if not others:
            others.append(opened(adapter))
        return apply(rows, at)

    monkeypatch.setattr(stale, "apply", slow)
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([receipt], Watermarks(builder.frontier))
    (current,) = others
    deliver(current, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    adapter.close()


@pytest.mark.parametrize("when", ["among the rows", "before the COMMIT"])
def test_the_server_of_the_catalogue_ends_the_connection_in_a_commit(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Worth another try: it stopped the pipeline."""
    adapter = DucklakeAdapter(tmp_path, database)
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, DucklakeDestination)
    changes = insert_items(builder, 0, 2)
    apply = destination.apply

    def cut(*_: object) -> None:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )

    def apply_and_cut(rows: MergedRows, at: Mark) -> Any:
        found = apply(rows, at)
        cut()
        return found

    with monkeypatch.context() as patch:
        if when == "among the rows":
            patch.setattr(destination, "apply", apply_and_cut)
        else:
            patch.setattr(ducklake_destination, "failpoint", cut)
        with pytest.raises(DestinationUnavailable):
            deliver(destination, builder.frontier, [changes])
    assert destination.committed() is None
    deliver(destination, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
    adapter.close()


def test_a_commit_whose_answer_was_lost_lands_after_the_lake_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows come again, and are there by then."""
    adapter = DucklakeAdapter(tmp_path)
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, DucklakeDestination)
    changes, before = insert_items(builder, 0, 2), destination.ledger.read()
    deliver(destination, builder.frontier, [changes])
    with monkeypatch.context() as patch:
        patch.setattr(destination.ledger, "read", lambda prefix="": before)
        assert destination.committed() is None
    with pytest.raises(BatchAgain, match="was lost"):
        deliver(destination, builder.frontier, [changes])
    assert destination.committed() == Watermarks(builder.frontier)
    assert_delivered(adapter, reference(changes))
    adapter.close()


@pytest.mark.parametrize("name", ["connections", "conflicts"])
def test_names_and_values_tell_of_no_lost_connection_and_no_other_writer(
    tmp_path: Path, name: str
) -> None:
    adapter = DucklakeAdapter(tmp_path)
    lake = Lake(adapter.options)
    lake.may_create = True
    for statement in (f"FROM {name}", f"SELECT CAST('{name}' AS INT)"):
        with pytest.raises(DestinationError) as told, lake.session() as session:
            session.execute(statement)
        assert type(told.value) is DestinationError, statement
    lake.close()
    adapter.close()


def test_a_database_that_is_not_there_is_told(tmp_path: Path, database: str) -> None:
    adapter = DucklakeAdapter(tmp_path, f"{database}_gone")
    destination = adapter.make()
    for ask in (destination.check, destination.committed, destination.open):
        with pytest.raises(DestinationUnavailable, match="_gone"):
            ask()
    adapter.close()


def test_a_stage_in_an_object_store(object_server: ObjectServer, tmp_path: Path) -> None:
    stage, options = object_server.place(), object_server.direct_options
    adapter = DucklakeAdapter(tmp_path, stage=stage, stage_options=options)
    owner = stage_owner("ducklake")
    expect_staged_in_a_bucket(adapter, Bucket(f"{stage}/{PIPELINE}", options, owner))
    assert not (tmp_path / "data-stage").exists()
    adapter.close()


@pytest.mark.parametrize("in_bucket", [False, True])
def test_maintenance_leaves_the_rows(
    tmp_path: Path, request: pytest.FixtureRequest, in_bucket: bool
) -> None:
    adapter = DucklakeAdapter(tmp_path)
    if in_bucket:
        adapter = InAnObjectStore(tmp_path, request.getfixturevalue("object_server"))
    destination = opened(adapter)
    assert isinstance(destination, DucklakeDestination)
    destination.maintenance_every = 0.0
    builder = ChangeBuilder()
    runs = []
    for number in range(3):
        runs.append(insert_items(builder, number, 1))
        deliver(destination, builder.frontier, [runs[-1]])
        destination._maintenance.wait()
    assert_delivered(adapter, reference(*runs))
    adapter.close()


def _lake_with_rows(tmp_path: Path, database: str) -> tuple[DucklakeAdapter, DucklakeDestination]:
    adapter = DucklakeAdapter(tmp_path, database)
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, DucklakeDestination)
    for number in range(2):
        deliver(destination, builder.frontier, [insert_items(builder, number, 20)])
    destination.maintain_rest()
    with destination._lake.transaction() as session:
        session.execute("CREATE TABLE others (id INT)")
        for _ in range(4):
            session.execute("INSERT INTO others SELECT * FROM range(1000)")
    return adapter, destination


def test_another_pipeline_keeps_house_while_rows_are_deleted(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckLake's compaction beside a small delete brings its rows back; so it has to wait."""
    monkeypatch.setattr(house_lock, "_TURN", "100ms")
    adapter, keeper = _lake_with_rows(tmp_path, database)
    other = Lake(adapter.options)
    with other.transaction() as session:
        session.execute("DELETE FROM others WHERE id = 7")
        with pytest.raises(DestinationUnavailable, match="write to the lake all the time"):
            keeper.maintain_rest()
    keeper.maintain_rest()
    with other.session() as session:
        assert session.execute("SELECT count(*) FROM others WHERE id = 7").fetchone() == (0,)
    with (
        keeper._lake.alone(),
        pytest.raises(DestinationUnavailable, match="puts the lake's files together"),
        other.transaction(),
    ):
        pytest.fail("nobody writes beside maintenance")
    other.close()
    adapter.close()


def test_a_frozen_process_does_not_keep_the_lock(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house_lock, "_LEASE", "500ms")
    monkeypatch.setattr(house_lock, "_HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(house_lock, "_TURN", "2s")
    adapter, keeper = _lake_with_rows(tmp_path, database)
    other = Lake(adapter.options)

    def delete() -> None:
        with other.transaction() as session:
            session.execute("DELETE FROM others WHERE id = 7")

    with keeper._lake.alone(), pytest.raises(DestinationUnavailable, match="puts the lake's files"):
        delete()
    monkeypatch.setattr(house_lock, "_HEARTBEAT_SECONDS", 60.0)

    def keep_house_while_frozen() -> None:
        with keeper._lake.alone():
            delete()
            with keeper._lake.transaction() as session:
                session.execute("INSERT INTO others VALUES (1)")

    with pytest.raises(DestinationUnavailable, match="idle-in-transaction timeout"):
        keep_house_while_frozen()
    with other.session() as session:
        assert session.execute("SELECT count(*) FROM others").fetchone() == (3996,)
    other.close()
    adapter.close()


def test_a_delete_whose_lock_was_lost_is_not_committed(tmp_path: Path, database: str) -> None:
    adapter, keeper = _lake_with_rows(tmp_path, database)
    other = Lake(adapter.options)

    def delete_beside_maintenance() -> None:
        with other.transaction() as session:
            session.execute("DELETE FROM others WHERE id = 7")
            with psycopg.connect(database, autocommit=True) as conn:
                conn.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks"
                    " WHERE mode = 'RowExclusiveLock' AND relation = 'ducklake_metadata'::regclass"
                )
            keeper.maintain_rest()

    with pytest.raises(DestinationUnavailable):
        delete_beside_maintenance()
    with other.transaction() as session:
        found = session.execute("SELECT count(*) FROM others WHERE id = 7").fetchone()
        session.execute("DELETE FROM others WHERE id = 7")
    assert found == (4,)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
            " application_name = 'penstock ducklake' AND datname = current_database()"
        )
    with other.transaction() as session:
        found = session.execute("SELECT count(*) FROM others WHERE id = 7").fetchone()
    assert found == (0,)
    other.close()
    adapter.close()


_SLOW_COMMIT = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON ducklake_snapshot
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()
"""


def test_the_files_of_a_commit_stay_whose_answer_was_lost(
    tmp_path: Path, database: str, pg_server: EmbeddedPostgres
) -> None:
    """DuckLake would remove them, and the catalogue name them for ever."""
    adapter, keeper = _lake_with_rows(tmp_path, database)

    def commits(conn: psycopg.Connection[Any]) -> bool:
        found = conn.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        return found.fetchone() is not None

    def change(lake: Lake) -> None:
        with lake.transaction() as session:
            session.execute("INSERT INTO others SELECT * FROM range(5000, 9000)")
            session.execute("DELETE FROM others WHERE id < 400")

    with (
        psycopg.connect(database, autocommit=True) as conn,
        TcpProxy(pg_server.port) as network,
        ThreadPoolExecutor() as threads,
    ):
        conn.execute(_SLOW_COMMIT)
        url = make_conninfo(database, host="127.0.0.1", port=network.port)
        far = Lake(adapter.options.model_copy(update={"catalog": ConnectionUrl(url)}))
        changed = threads.submit(change, far)
        wait_until(lambda: commits(conn), "it commits")
        network.cut()
        with pytest.raises(DestinationUnavailable, match="its answer was lost"):
            changed.result()
        wait_until(lambda: not commits(conn), "it has committed")
        far.close()
    with keeper._lake.session() as session:
        # As the page says; it would remove what the catalogue does not know.
        lake = literal(keeper._lake.name)
        session.execute(f"CALL ducklake_delete_orphaned_files({lake}, older_than => now())")
        found = session.execute("SELECT count(*), min(id), max(id) FROM others").fetchone()
    assert found == (4 * 600 + 4000, 400, 8999)
    adapter.close()


def test_what_duckdb_has_given_up_is_never_ended() -> None:
    """Its destructor throws, and the process ends."""
    session = Mock()
    session.execute.side_effect = duckdb.FatalException("invalidated because of a fatal error")
    lake_sessions._end(session)
    assert not session.close.called
    assert lake_sessions._is_away(duckdb.FatalException(), "")
    assert lake_sessions._is_away(duckdb.InternalException(), "")


def test_what_follows_a_query_that_the_catalogue_did_not_answer_is_no_table_s_fault(
    tmp_path: Path, database: str
) -> None:
    """DuckDB then tells of an aborted transaction, and of no cause."""
    adapter, keeper = _lake_with_rows(tmp_path, database)
    count = "SELECT count(*) FROM others"

    def ask_twice() -> None:
        with keeper._lake.transaction() as session:
            session.execute(count).fetchall()
            with psycopg.connect(database, autocommit=True) as conn:
                conn.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            with suppress(duckdb.Error):
                session.execute(count)
            session.execute(count)

    with pytest.raises(DestinationUnavailable, match="transaction is aborted"):
        ask_twice()
    with keeper._lake.transaction() as session:
        assert session.execute(count).fetchone() == (4000,)
    adapter.close()


def test_many_tables_are_merged_by_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where that fails, the next batch has all threads again."""
    monkeypatch.setattr(ducklake_destination, "_MANY_TABLES", 3)
    adapter = DucklakeAdapter(tmp_path)
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, DucklakeDestination)
    merge, seen = merge_rows, list[int]()

    def failing(session: Any, rows: MergedRows) -> Any:
        seen.append(_threads(session))
        if len(seen) == 2:
            session.execute("SELECT 'x'::int")
        return merge(session, rows)

    monkeypatch.setattr(ducklake_destination, "merge_rows", failing)
    changes = insert_items(builder, 0, 2)
    with pytest.raises(DestinationError):
        deliver(destination, builder.frontier, [changes])
    with destination._lake.session() as session:
        everywhere = _threads(session)
    deliver(destination, builder.frontier, [changes])
    with destination._lake.session() as session:
        assert _threads(session) == everywhere
    assert set(seen) == {1}
    assert everywhere != 1 or os.cpu_count() == 1
    assert_delivered(adapter, reference(changes))
    adapter.close()


def _threads(session: Any) -> int:
    ((found,),) = session.execute("SELECT current_setting('threads')").fetchall()
    return int(found)


def test_rows_that_went_unseen_are_not_left_after_another_copy(tmp_path: Path) -> None:
    adapter = DucklakeLatest(tmp_path)
    destination = opened(adapter)
    assert isinstance(destination, DucklakeDestination)
    table, name = definition(ITEMS), (ITEMS.schema, ITEMS.name)
    for lsn, rows in ((0x10, [("1", "a"), ("2", "b")]), (0x20, [("2", "c")])):
        destination.truncate_table(table)
        copy_chunks(destination, ChunkRows(ITEMS, "0", rows, Frontier(lsn, lsn)))
        left: list[Row] = [dict(zip(("id", "name"), row, strict=True)) for row in rows]
        assert adapter.rows(name) == Counter(map(frozen, left))
    destination.truncate_table(table)
    copy_chunks(destination, ChunkRows(ITEMS, "0", [], Frontier(0x30, 0x30)))
    assert not adapter.rows(name)
    adapter.close()


def test_another_catalogue_with_the_same_data_path_leaves_the_rows_of_the_first(
    tmp_path: Path,
) -> None:
    """Both are of pipelines with the same name. Files that a driver left behind go from its own."""
    adapter = DucklakeAdapter(tmp_path)
    destination = opened(adapter)
    assert isinstance(destination, DucklakeDestination)
    destination.truncate_table(definition(ITEMS))
    rows = [("1", "a"), ("2", "b")]
    copy_chunks(destination, ChunkRows(ITEMS, "0", rows, Frontier(1, 1)))
    write_chunks(destination, ChunkRows(ITEMS, "1", [("3", "c")], Frontier(1, 1)))
    worker = adapter.make()
    assert isinstance(worker, DucklakeDestination)
    write_elsewhere(destination, worker, ChunkRows(ITEMS, "2", [("4", "d")], Frontier(1, 1)))
    destination.close()
    copied = set((tmp_path / "data" / "penstock-copies").rglob("*.parquet"))
    assert len(copied) == 3
    other = {"catalog_file": str(tmp_path / "other.ducklake"), "data_path": str(tmp_path / "data")}
    another = DucklakeDestination(DucklakeOptions.model_validate(other), PIPELINE)
    another.open()
    another.close()
    assert set((tmp_path / "data" / "penstock-copies").rglob("*.parquet")) == copied
    opened(adapter)
    assert len(set((tmp_path / "data" / "penstock-copies").rglob("*.parquet"))) == 1
    left: list[Row] = [dict(zip(("id", "name"), row, strict=True)) for row in rows]
    assert adapter.rows((ITEMS.schema, ITEMS.name)) == Counter(map(frozen, left))
    adapter.close()


def test_copied_rows_in_an_object_store_that_nobody_added_are_removed(
    object_server: ObjectServer, tmp_path: Path
) -> None:
    adapter = InAnObjectStore(tmp_path, object_server)
    destination, copied = opened(adapter), ChunkRows(ITEMS, "0", [("1", "a")], Frontier(1, 1))
    assert isinstance(destination, DucklakeDestination)
    destination.truncate_table(definition(ITEMS))
    copy_chunks(destination, copied)
    write_chunks(destination, ChunkRows(ITEMS, "1", [("2", "b")], Frontier(1, 1)))
    place = destination._bucket(*destination._copies)
    assert len(place.list()) == 2
    opened(adapter)
    assert len(place.list()) == 1
    assert adapter.rows((ITEMS.schema, ITEMS.name)).total() == 1
    adapter.close()


def test_a_store_that_refuses_or_is_away_is_told_without_its_keys(
    object_server: ObjectServer, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    wrong = object_server.direct_options | dict.fromkeys(["secret_access_key"], _HIDDEN)
    away = {**object_server.direct_options, "endpoint": f"http://127.0.0.1:{port}"}
    adapter = InAnObjectStore(tmp_path, object_server)
    opened(adapter).close()
    for options in (wrong, away):
        lake = Lake(adapter.options.model_copy(update={"data_options": _secrets(options)}))
        with pytest.raises(DestinationError) as told:
            _write_file(lake)
        assert _HIDDEN not in str(told.value)
        lake.close()
    adapter.close()


def _write_file(lake: Lake) -> None:
    with lake.session() as session:
        session.execute("CREATE TABLE public.more AS SELECT range FROM range(1000)")
        session.execute("CALL ducklake_flush_inlined_data(?)", [lake.name])


def _secrets(options: dict[str, str]) -> dict[str, SecretStr]:
    return {name: SecretStr(value) for name, value in options.items()}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"data_path": "gs://bucket/lake"}, "such as s3://bucket/prefix"),
        ({"data_path": "s3://bucket"}, "such as s3://bucket/prefix"),
        ({"data_path": "s3://bucket/lake"}, "say access_key_id and secret_access_key"),
        ({"data_path": "/lake", "data_options": {"region": "x"}}, "for a `data_path` in S3"),
        ({"data_path": "s3://b/lake", "data_options": {"profile": "x"}}, "for a `data_path` in"),
    ],
)
def test_options_that_contradict(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        DucklakeOptions.model_validate({"catalog_file": "lake.db", **given})
