"""Crashes, takeovers and damage around the commit of ``files``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import failpoints
from penstock.decode.changes import ChangeSet
from penstock.destination.files import staging
from penstock.destination.files.committed_files import list_files
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.folding import fold
from penstock.destination.files.layout import MESSAGES, table_folder
from penstock.destination.files.manifest import read_manifest
from penstock.destination.files.options import FilesOptions
from penstock.model.errors import DestinationError, DestinationUnavailable, Fenced
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder, Column, table

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))


def files(path: Path, pipeline: str = "shop", **options: str) -> FilesDestination:
    values = {"path": str(path), **options}
    return FilesDestination(FilesOptions.model_validate(values), pipeline)


def opened(path: Path, pipeline: str = "shop", **options: str) -> FilesDestination:
    destination = files(path, pipeline, **options)
    destination.open()
    return destination


def insert(builder: ChangeBuilder, *ids: int) -> ChangeSet:
    with builder.transaction():
        for number in ids:
            builder.insert(ITEMS, str(number), "x")
    return builder.cut()


def ids(path: Path, pipeline: str = "shop") -> list[int]:
    return sorted(row[0] for row in fold(path, pipeline, "public", "items").rows.elements())


def staged(path: Path) -> list[Path]:
    return sorted(path.glob("_penstock/*/staging/*"))


def fail_at(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setitem(failpoints._points, place, ("error", 1))


def test_a_crash_between_manifest_and_renames_is_finished_by_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ChangeBuilder()
    first = opened(tmp_path)
    receipt = first.writer().write([insert(builder, 1, 2)])
    fail_at(monkeypatch, "files.manifest_written")
    with pytest.raises(RuntimeError, match="manifest_written"):
        first.commit([receipt], Watermarks(builder.frontier))

    # Committed, though not in place: a reader who asks finds it where it waits.
    assert first.committed() == Watermarks(builder.frontier)
    assert list(tmp_path.glob("public.items/*/*")) == []
    assert list_files(tmp_path, "shop") == staged(tmp_path) != []
    assert ids(tmp_path) == [1, 2]

    second = opened(tmp_path)
    assert second.committed() == Watermarks(builder.frontier)
    assert staged(tmp_path) == []
    assert list_files(tmp_path, "shop") == list(tmp_path.glob("public.items/*/*"))
    assert ids(tmp_path) == [1, 2]


def test_what_a_manifest_names_has_reached_the_disk_and_so_has_the_manifest(
    tmp_path: Path, disk_steps: list[str]
) -> None:
    builder = ChangeBuilder()
    driver = opened(tmp_path)
    receipt = driver.writer().write([insert(builder, 1, 2)])
    (data,) = staged(tmp_path)
    assert f"{data.stat().st_size} bytes" in disk_steps, "before anybody hears of it"
    disk_steps.clear()
    driver.commit([receipt], Watermarks(builder.frontier))
    manifest = max(tmp_path.glob("_penstock/*/manifests/*.json"))
    assert disk_steps[:3] == [f"{manifest.stat().st_size} bytes", manifest.name, "folder"]


def test_a_driver_that_failed_to_rename_does_so_before_its_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ChangeBuilder()
    driver = opened(tmp_path)
    receipt = driver.writer().write([insert(builder, 1)])
    fail_at(monkeypatch, "files.manifest_written")
    with pytest.raises(RuntimeError, match="manifest_written"):
        driver.commit([receipt], Watermarks(builder.frontier))
    driver.commit([], Watermarks(Frontier(builder.frontier.commit_lsn, 2**40)))
    assert staged(tmp_path) == []
    assert ids(tmp_path) == [1]


def test_a_crash_after_staging_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ChangeBuilder()
    driver = opened(tmp_path)
    changes = insert(builder, 1)
    fail_at(monkeypatch, "files.staged")
    with pytest.raises(RuntimeError, match="staged"):
        driver.writer().write([changes])
    assert len(staged(tmp_path)) == 1
    assert list_files(tmp_path, "shop") == []

    driver = opened(tmp_path)
    assert staged(tmp_path) == []
    driver.commit([driver.writer().write([changes])], Watermarks(builder.frontier))
    assert ids(tmp_path) == [1]


def test_a_driver_that_slept_past_the_removal_of_old_manifests_is_fenced(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    stale = opened(tmp_path)
    current = opened(tmp_path)
    for end in range(100):
        current.commit([], Watermarks(Frontier(5, 6 + end)))
    numbers = [int(path.stem) for path in tmp_path.glob("_penstock/shop/manifests/*")]
    # The stale driver's next number is free again.
    assert len(numbers) < 40
    assert 2 not in numbers
    receipt = stale.writer().write([insert(builder, 1)])
    for _ in range(2):
        with pytest.raises(Fenced, match="taken over"):
            stale.commit([receipt], Watermarks(builder.frontier))
    assert current.committed() == Watermarks(Frontier(5, 105))
    assert ids(tmp_path) == []
    current.commit([], Watermarks(Frontier(5, 200)))


def test_manifests_go_on_beyond_the_digits_of_a_name(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    (first,) = tmp_path.glob("_penstock/shop/manifests/*")
    last = json.loads(first.read_text()) | {"number": 10**12 - 1}
    first.with_name(f"{10**12 - 1}.json").write_text(json.dumps(last))
    driver = opened(tmp_path)
    driver.commit([], Watermarks(Frontier(5, 6)))
    manifest = read_manifest(tmp_path, "shop")
    assert manifest is not None
    assert (manifest.number, manifest.frontier) == (10**12 + 1, Frontier(5, 6))


def test_idle_commits_do_not_pile_up(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    most = 0
    for end in range(200):
        driver.commit([], Watermarks(Frontier(1, end)))
        most = max(most, len(list(tmp_path.glob("_penstock/shop/*/*"))))
    assert most < 40
    manifest = read_manifest(tmp_path, "shop")
    assert manifest is not None
    assert (manifest.number, manifest.frontier) == (201, Frontier(1, 199))


def test_the_manifest_says_what_was_delivered(tmp_path: Path) -> None:
    builder = ChangeBuilder(first_lsn=0x10)
    driver = opened(tmp_path)
    driver.commit([driver.writer().write([insert(builder, 1, 2)])], Watermarks(builder.frontier))
    manifest = read_manifest(tmp_path, "shop")
    assert manifest is not None
    assert manifest.number == 2
    (file,) = manifest.files
    assert (file.rows, file.first, file.last) == (2, "0/1010+0", "0/1010+1")
    assert file.bytes == (tmp_path / file.final).stat().st_size
    assert file.final.startswith("public.items/commit_date=2026-01-02/000000000000101000000000-")


def test_pipelines_share_a_path_without_seeing_each_other(tmp_path: Path) -> None:
    for number, pipeline in enumerate(("shop", "shop_2")):
        builder = ChangeBuilder()
        driver = opened(tmp_path, pipeline)
        driver.commit(
            [driver.writer().write([insert(builder, number)])], Watermarks(builder.frontier)
        )
    assert ids(tmp_path, "shop") == [0]
    assert ids(tmp_path, "shop_2") == [1]
    assert read_manifest(tmp_path, "other") is None
    assert list_files(tmp_path, "other") == []


def test_files_of_a_later_commit_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ChangeBuilder()
    driver = opened(tmp_path)
    driver.commit([driver.writer().write([insert(builder, 1)])], Watermarks(builder.frontier))
    before = read_manifest(tmp_path, "shop")
    driver.commit([driver.writer().write([insert(builder, 2)])], Watermarks(builder.frontier))
    # A reader that read the manifest just before the second commit.
    monkeypatch.setattr(
        "penstock.destination.files.committed_files.read_manifest", lambda *_: before
    )
    assert len(list(tmp_path.glob("public.items/*/*"))) == 2
    assert len(list_files(tmp_path, "shop")) == 1


def test_a_folder_limits_the_list(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "x")
        builder.message("p", b"x")
    driver = opened(tmp_path)
    driver.commit([driver.writer().write([builder.cut()])], Watermarks(builder.frontier))
    assert [p.parts[-3] for p in list_files(tmp_path, "shop")] == [MESSAGES, "public.items"]
    assert len(list_files(tmp_path, "shop", MESSAGES)) == 1
    assert len(list_files(tmp_path, "shop", table_folder("public", "items"))) == 1
    assert list_files(tmp_path, "shop", table_folder("public", "item")) == []


def test_more_tables_than_files_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_MOST_OPEN", 3)
    builder = ChangeBuilder()
    tables = [table(f"t{number}", Column("id", "int8", key=True)) for number in range(10)]
    runs = []
    for run in range(3):
        with builder.transaction():
            for each in tables:
                builder.insert(each, str(run))
        runs.append(builder.cut())
    driver = opened(tmp_path)
    driver.commit([driver.writer().write(runs)], Watermarks(builder.frontier))
    for each in tables:
        folded = fold(tmp_path, "shop", "public", each.name)
        assert sorted(folded.rows) == [(0,), (1,), (2,)]


def test_runs_of_one_task_share_a_file(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    driver = opened(tmp_path)
    runs = [insert(builder, number) for number in range(5)]
    driver.commit([driver.writer().write(runs)], Watermarks(builder.frontier))
    assert len(list_files(tmp_path, "shop")) == 1
    assert ids(tmp_path) == [0, 1, 2, 3, 4]


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    driver.commit([], Watermarks(Frontier(1, 2)))
    path = tmp_path / "_penstock/shop/manifests/000000000002.json"
    good = path.read_bytes()
    path.write_bytes(good[:40])
    with pytest.raises(DestinationError, match=r"000000000002\.json is damaged"):
        opened(tmp_path)
    path.write_text(json.dumps({**json.loads(good), "version": 9}))
    with pytest.raises(DestinationError, match="has version 9"):
        driver.committed()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DestinationError, match="is a file"):
        files(blocked / "below").check()
    with pytest.raises(DestinationError, match="cannot write below"):
        opened(blocked / "below")
    with pytest.raises(DestinationError, match="no place that is known"):
        FilesDestination(FilesOptions(path="ftp://server/x"), "shop").check()
    files(tmp_path / "new" / "deep").check()
    assert not (tmp_path / "new").exists()


def test_a_disk_that_fills_up_fails_the_task_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ChangeBuilder()
    driver = opened(tmp_path)
    changes = insert(builder, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(staging._ParquetSink, "write", full)
        with pytest.raises(DestinationUnavailable, match="No space left on device"):
            driver.writer().write([changes])
    assert staged(tmp_path) == []


def test_commit_needs_open(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="before open"):
        files(tmp_path).commit([], Watermarks(Frontier(1, 2)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "path"),
        ({"path": ""}, "path"),
        ({"path": "x", "format": "csv"}, "format"),
        ({"path": "x", "format": "ndjson", "compression": "zstd"}, "format parquet"),
        ({"path": "x", "colour": "red"}, "colour"),
    ],
)
def test_wrong_options(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FilesOptions.model_validate(options)
