"""Iceberg tables that `iceberg` wrote, read and compacted by Spark with Iceberg's own runtime."""

# ruff: noqa: S608 - names are the test's own.

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.destination.iceberg.destination import IcebergDestination
from penstock.destination.iceberg.snapshots import entries_of
from penstock.testing import frozen
from penstock.testing.change_builder import UNSET, ChangeBuilder
from penstock.testing.contract.deliveries import (
    ITEMS,
    LOOSE,
    NOTES,
    assert_delivered,
    deliver,
    opened,
    reference,
)
from penstock.testing.merge_model import MergeModel
from tests.contract.test_iceberg import IcebergAdapter, IcebergChanges, Partitioned
from tests.iceberg_spark import spark_sql

pytestmark = [pytest.mark.release, pytest.mark.slow]


@pytest.mark.parametrize("kind", [IcebergAdapter, Partitioned])
@pytest.mark.parametrize("deletes", ["equality", "position"])
def test_spark_reads_what_was_written_and_its_commits_are_taken(
    tmp_path: Path, deletes: str, kind: type[IcebergAdapter]
) -> None:
    """All kinds of commits, our compaction among them; then one of Spark's, and rows after it."""
    adapter = kind(tmp_path, deletes, maintenance={"every": "never", "small_files": "1B"})
    destination = opened(adapter)
    assert isinstance(destination, IcebergDestination)
    builder = ChangeBuilder()
    runs = []
    for number in range(6):
        with builder.transaction():
            for key in range(4):
                builder.insert(ITEMS, str(10 * number + key), f"item {number}")
            builder.insert(NOTES, str(number), "é")
            builder.insert(LOOSE, "equal", None)
            if number:
                old = 10 * (number - 1)
                builder.update(ITEMS, str(old), "changed")
                builder.update(ITEMS, str(old + 5), UNSET, key=[str(old + 1), None])
                builder.delete(ITEMS, key=[str(old + 2), None])
                builder.delete(LOOSE, full=["equal", None])
        runs.append(builder.cut())
        deliver(destination, builder.frontier, [runs[-1]])
        if number == 3:
            for target in destination._targets.values():
                destination.maintain(target)
    select = [f"SELECT * FROM penstock.public.{name}" for name in ("items", "notes", "loose")]
    compact = [
        f"CALL penstock.system.{procedure}('public.items')"
        for procedure in ("rewrite_data_files", "rewrite_manifests")
    ]
    before = spark_sql(tmp_path / "catalog.db", tmp_path / "lake", *select, *compact, *select)
    model = MergeModel({(of.schema, of.name): _key(of) for of in (ITEMS, NOTES, LOOSE)})
    model.apply(reference(*runs))
    for rows, of in zip([*before[:3], *before[5:]], (ITEMS, NOTES, LOOSE) * 2, strict=True):
        texts = [{k: None if v is None else str(v) for k, v in row.items()} for row in rows]
        found = sorted(map(frozen, texts), key=str)
        assert found == sorted(model.rows((of.schema, of.name)).elements(), key=str)
    with builder.transaction():
        builder.update(ITEMS, "0", "after Spark")
    runs.append(builder.cut())
    deliver(destination, builder.frontier, [runs[-1]])
    assert_delivered(adapter, reference(*runs))
    assert entries_of(adapter.table((ITEMS.schema, ITEMS.name)))
    adapter.close()


def _key(of: object) -> list[str]:
    return [column.name for column in of.columns if column.key]  # type: ignore[attr-defined]


def test_the_documented_view_of_a_change_table(tmp_path: Path) -> None:
    adapter = IcebergChanges(tmp_path)
    destination = opened(adapter)
    builder = ChangeBuilder()
    with builder.transaction():
        for key in range(4):
            builder.insert(ITEMS, str(key), "old")
    with builder.transaction():
        builder.truncate(ITEMS)
        for key in range(3):
            builder.insert(ITEMS, str(key), "new")
        builder.update(ITEMS, "0", "changed")
        builder.delete(ITEMS, key=["1", None])
    deliver(destination, builder.frontier, [builder.cut()])
    page = Path(__file__).parents[2] / "docs" / "change_tables.md"
    (view,) = re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)
    assert "FROM items" in view
    view = view.replace("FROM items", "FROM penstock.public.items")
    select = "SELECT * FROM items_latest ORDER BY id"
    found = spark_sql(tmp_path / "catalog.db", tmp_path / "lake", view, select)
    assert found[1] == [{"id": 0, "name": "changed"}, {"id": 2, "name": "new"}]
    adapter.close()
