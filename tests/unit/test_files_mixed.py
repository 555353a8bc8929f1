"""``layout: bifrost``: names, sizes and lines."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.options import FilesOptions
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import ITEMS, NOTES, definition


def deliver(path: Path, builder: ChangeBuilder, **options: Any) -> list[Path]:
    """What two tables' rows, a TRUNCATE and a message become."""
    given = {"path": str(path), "layout": "bifrost", **options}
    destination = FilesDestination(FilesOptions.model_validate(given), "shop")
    destination.open()
    destination.prepare([definition(ITEMS), definition(NOTES)])
    for number in range(3):
        with builder.transaction():
            builder.insert(ITEMS, str(number), "a")
            builder.insert(NOTES, str(number), None)
            builder.update(ITEMS, str(number), "b")
    with builder.transaction():
        builder.truncate(ITEMS)
    receipt = destination.writer().write([builder.cut()])
    assert [f for f in path.glob("shop/**/*") if f.is_file()] == []  # not before the commit
    destination.commit([receipt], Watermarks(builder.frontier))
    destination.close()
    return sorted(file for file in path.glob("shop/**/*") if file.is_file())


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_one_file_has_all_tables_in_commit_order(tmp_path: Path) -> None:
    (file,) = deliver(tmp_path, ChangeBuilder())
    name = file.relative_to(tmp_path).as_posix()
    assert name.startswith("shop/2026/01/")
    found = lines(file)
    assert [line["operation"] for line in found] == ["INSERT", "INSERT", "UPDATE"] * 3 + [
        "TRUNCATE"
    ]
    assert [line["table"] for line in found[:3]] == [
        "public.items",
        "public.notes",
        "public.items",
    ]
    time = found[0]["time"].replace("-", "").replace(":", "").removesuffix("Z")
    year, month, day, hour = time[:4], time[4:6], time[6:8], time[9:11]
    assert name.startswith(f"shop/{year}/{month}/{day}/{hour}/{time}_")
    # Position: 16 digits of the commit LSN, 8 of the ordinal.
    assert len(file.stem.partition("_")[2]) == 24


def test_files_are_cut_by_size_and_named_by_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.destination.files.mixed_files._PIECE_LINES", 1)
    files = deliver(
        tmp_path,
        ChangeBuilder(),
        template="{pipeline}/{year}-{month}/{first}",
        file_bytes=300,
        compression="none",
        format="ndjson",
    )
    assert len(files) > 3
    assert all(file.suffix == ".ndjson" for file in files)
    events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(events) == 10
    places = [(event["position"]["commit_lsn"], event["position"]["ordinal"]) for event in events]
    assert places == sorted(places)
    assert {event["op"] for event in events} == {"insert", "update", "truncate"}


def test_parquet_has_a_row_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.destination.files.mixed_files._PIECE_LINES", 2)
    monkeypatch.setattr("penstock.destination.files.mixed_files._ROW_GROUP_BYTES", 1)
    files = deliver(tmp_path, ChangeBuilder(), format="parquet", file_bytes=1000)
    assert len(files) > 1
    assert all(re.fullmatch(r"\d{8}T\d{6}_[0-9A-F]{24}\.parquet", file.name) for file in files)
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert [row["op"] for row in rows] == ["insert", "insert", "update"] * 3 + ["truncate"]
    assert [row["table"] for row in rows[:3]] == ["items", "notes", "items"]
    places = [(row["commit_lsn"], row["ordinal"]) for row in rows]
    assert places == sorted(set(places))
    told = [json.loads(row["value"]) for row in rows]
    assert [event["op"] for event in told] == [row["op"] for row in rows]
    assert pq.ParquetFile(files[0]).metadata.row_group(0).column(6).compression == "ZSTD"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layout": "bifrost", "compression": "zstd"}, "compression gzip or none"),
        ({"layout": "bifrost", "template": "{first}"}, "{pipeline} and {first}"),
        ({"layout": "bifrost", "template": "{pipeline}/{table}/{first}"}, "relative name"),
        ({"layout": "bifrost", "template": "_{pipeline}/{first}"}, "relative name"),
        ({"format": "bifrost"}, "of layout bifrost only"),
        ({"file_bytes": "1MB"}, "of layout bifrost only"),
        ({"compression": "gzip"}, "of layout bifrost only"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as error:
        FilesOptions.model_validate({"path": "x", **given})
    assert said in str(error.value)
