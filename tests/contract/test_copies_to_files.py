"""Crashes and layouts of copied rows that only ``files`` has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock import failpoints
from penstock.decode.row_values import READ_ORDINAL
from penstock.destination.files import staging
from penstock.destination.files.committed_files import list_files
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.folding import fold
from penstock.destination.files.manifest import read_manifest
from penstock.destination.files.options import FilesOptions
from penstock.model.errors import DecodeError, DestinationError
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.chunk_rows import SNAPSHOT, ChunkRows, copy_chunks, write_chunks
from penstock.testing.contract.deliveries import ITEMS, definition, insert_items

FIRST = [("1", "a"), ("2", None), ("3", "c")]


def first() -> ChunkRows:
    return ChunkRows(ITEMS, "0", FIRST)


def opened(path: Path, **options: str) -> FilesDestination:
    values = {"path": str(path), **options}
    destination = FilesDestination(FilesOptions.model_validate(values), "shop")
    destination.open()
    return destination


def staged(path: Path) -> list[Path]:
    return sorted(path.glob("_penstock/*/staging/*"))


def in_place(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("*/commit_date=*/*"))


def folded(path: Path) -> Counter[tuple[Any, ...]]:
    return fold(path, "shop", "public", "items").rows


def test_a_crash_between_manifest_and_renames_is_finished_by_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = opened(tmp_path)
    destination.commit([], Watermarks(Frontier(1, 2)))
    receipts = write_chunks(destination, first())
    monkeypatch.setitem(failpoints._points, "files.manifest_written", ("error", 1))
    with pytest.raises(RuntimeError, match="manifest_written"):
        destination.commit_chunks(receipts)
    assert in_place(tmp_path) == []
    assert list_files(tmp_path, "shop") == staged(tmp_path) != []
    assert folded(tmp_path).total() == 3

    destination = opened(tmp_path)
    assert staged(tmp_path) == []
    assert in_place(tmp_path) == ["read-0-shop.parquet"]
    assert destination.committed() == Watermarks(Frontier(1, 2))
    copy_chunks(destination, first())
    assert folded(tmp_path).total() == 3


@pytest.mark.parametrize("then", ["batch", "chunk", "truncate"])
def test_a_driver_that_failed_to_rename_does_so_before_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    steps: dict[str, Callable[[], None]] = {
        "batch": lambda: destination.commit([], Watermarks(Frontier(5, 6))),
        "chunk": lambda: destination.commit_chunks(receipts),
        "truncate": lambda: destination.truncate_table(definition(ITEMS)),
    }
    destination = opened(tmp_path)
    receipts = write_chunks(destination, first())
    monkeypatch.setitem(failpoints._points, "files.manifest_written", ("error", 1))
    with pytest.raises(RuntimeError, match="manifest_written"):
        destination.commit_chunks(receipts)
    steps[then]()
    assert staged(tmp_path) == []
    assert ("read-0-shop.parquet" in in_place(tmp_path)) == (then != "truncate")
    assert folded(tmp_path) == Counter([(1, "a"), (2, None), (3, "c")])


def test_what_was_written_in_vain_does_not_stay(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    copy_chunks(destination, first(), first())
    copy_chunks(destination, first())
    assert staged(tmp_path) == []
    number = read_manifest(tmp_path, "shop")
    copy_chunks(destination, first(), ChunkRows(ITEMS, "1", []))
    # Nothing new: no commit either.
    assert read_manifest(tmp_path, "shop") == number


def test_a_staged_file_that_somebody_removed(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    receipts = write_chunks(destination, first())
    for file in staged(tmp_path):
        file.unlink()
    with pytest.raises(DestinationError, match=r"read-0-shop\.parquet, is not there any more"):
        destination.commit_chunks(receipts)
    copy_chunks(destination, first())
    assert folded(tmp_path).total() == 3


def test_a_disk_that_fills_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = opened(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(staging._ParquetSink, "write", full)
        with pytest.raises(DestinationError, match="No space left on device"):
            write_chunks(destination, first())
    assert staged(tmp_path) == []


def test_batches_and_chunks_are_committed_beside_each_other(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    builder = ChangeBuilder()
    batches = [(insert_items(builder, 100 + n, 1), builder.frontier) for n in range(20)]

    def stream() -> None:
        for changes, frontier in batches:
            destination.commit([destination.writer().write([changes])], Watermarks(frontier))

    def copy() -> None:
        for number in range(20):
            copy_chunks(destination, ChunkRows(ITEMS, str(number), [(str(number), "copied")]))

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(stream), pool.submit(copy)]:
            done.result()
    assert destination.committed() == Watermarks(builder.frontier)
    expected = [(n, "copied") for n in range(20)] + [(100 + n, "renamed") for n in range(20)]
    assert folded(tmp_path) == Counter(expected)
    manifest = read_manifest(tmp_path, "shop")
    assert manifest is not None
    assert manifest.number == 41


def test_the_manifest_names_the_chunk(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    (receipt,) = write_chunks(destination, first())
    destination.commit_chunks([receipt])
    manifest = read_manifest(tmp_path, "shop")
    assert manifest is not None
    (file,) = manifest.files
    assert (file.rows, file.first, file.last) == (3, *[f"0/50+{READ_ORDINAL}"] * 2)
    assert file.bytes == receipt.bytes == (tmp_path / file.final).stat().st_size
    assert manifest.frontier is None


def test_a_row_group_a_piece(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    rows = [(str(number), "x") for number in range(10)]
    copy_chunks(destination, ChunkRows(ITEMS, "0", rows, piece=4))
    (file,) = list_files(tmp_path, "shop")
    data = pq.ParquetFile(file)
    groups = [data.metadata.row_group(n).num_rows for n in range(data.num_row_groups)]
    assert groups == [4, 4, 2]


def test_parquet_columns(tmp_path: Path) -> None:
    items = table(
        "items",
        Column("id", "int8", key=True),
        Column("at", "date"),
        Column("ratio", "float8"),
        Column("_op", "text"),
    )
    rows = [("1", "infinity", "NaN", "own"), ("2", "2026-01-02", None, None)]
    copy_chunks(opened(tmp_path), ChunkRows(items, "0", rows))
    (file,) = list_files(tmp_path, "shop")
    one, two = pq.ParquetFile(file).read().to_pylist()
    assert (one["_op"], one["_op_"], one["id"], str(one["ratio"])) == ("read", "own", 1, "nan")
    assert (one["at"], one["_raw"]) == (None, [("at", "infinity")])
    assert (two["at"], two["_raw"], two["ratio"]) == (date(2026, 1, 2), [], None)
    stamps = ("_commit_lsn", "_ordinal", "_lsn", "_xid", "_commit_ts", "_unset", "_old")
    expected: list[object] = [SNAPSHOT.commit_lsn, 2**32, None, None, None, [], None]
    for row in (one, two):
        assert [row[name] for name in stamps] == expected


@pytest.mark.parametrize("file_format", ["parquet", "ndjson"])
def test_copied_rows_lie_below_later_changes(tmp_path: Path, file_format: str) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(ITEMS, "1", "new")
        builder.delete(ITEMS, key=["2", None])
    changes = builder.cut()
    destination = opened(tmp_path, format=file_format)
    destination.commit([destination.writer().write([changes])], Watermarks(builder.frontier))
    copy_chunks(destination, first())
    one, three = (1, 3) if file_format == "parquet" else ("1", "3")
    assert folded(tmp_path) == Counter([(one, "new"), (three, "c")])


def test_a_malformed_value_names_its_column(tmp_path: Path) -> None:
    items = table("items", Column("id", "int8", key=True), Column("at", "date"))
    with pytest.raises(DecodeError, match=r"table public\.items, column at: 'yesterday'"):
        write_chunks(opened(tmp_path), ChunkRows(items, "0", [("1", "yesterday")]))
    assert staged(tmp_path) == []
