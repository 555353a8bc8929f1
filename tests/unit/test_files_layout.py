"""Names of folders and files."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from penstock.destination.files.layout import (
    chunk_file,
    data_file,
    date_folder,
    last_commit_lsn,
    table_folder,
)
from penstock.model.lsn import Position

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
positions = st.builds(Position, st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1))


@given(names, names, names, names)
def test_a_table_has_one_folder_of_its_own(a: str, b: str, c: str, d: str) -> None:
    folder = table_folder(a, b)
    assert len(PurePosixPath(folder).parts) == 1
    assert folder.isascii()
    assert len(folder) <= 200
    assert not folder.startswith((".", "_"))
    assert (folder == table_folder(c, d)) == ((a, b) == (c, d))


def test_folders_that_people_see() -> None:
    assert table_folder("public", "order_items") == "public.order_items"
    assert table_folder("a.b", "c") == "a%2Eb.c"
    assert table_folder("a", "b.c") == "a.b%2Ec"
    assert table_folder("..", "/x") == "%2E%2E.%2Fx"
    assert table_folder("_private", "_t") == "%5Fprivate._t"


@given(positions, positions, positions, positions)
def test_file_names_sort_by_position(a: Position, b: Position, c: Position, d: Position) -> None:
    one, two = (data_file(first, last, "p", "ab", ".parquet") for first, last in ((a, b), (c, d)))
    if (a, b) != (c, d):
        assert (one < two) == ((a, b) < (c, d))
    assert last_commit_lsn(one, "p") == b.commit_lsn
    assert last_commit_lsn(one, "q") is None


@given(names)
def test_chunks_keep_their_name(chunk: str) -> None:
    name = chunk_file(chunk, "p", ".ndjson")
    assert name == chunk_file(chunk, "p", ".ndjson") != chunk_file(chunk + "x", "p", ".ndjson")
    assert "/" not in name
    assert len(name) < 200
    assert last_commit_lsn(name, "p") == 0


def test_foreign_files_are_nobodys() -> None:
    for name in ("part-0000.parquet", "_SUCCESS", ".x.crc", "read-1-p.parquet.tmp"):
        assert last_commit_lsn(name, "p") is None


def test_dates_are_utc_days() -> None:
    assert date_folder(0) == "commit_date=1970-01-01"
    assert date_folder(-1) == "commit_date=1969-12-31"
    assert date_folder(1_767_311_999_999_999) == "commit_date=2026-01-01"
    assert date_folder(1_767_312_000_000_000) == "commit_date=2026-01-02"
    assert date_folder(None) == "commit_date=__HIVE_DEFAULT_PARTITION__"
