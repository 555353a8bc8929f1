"""Which tables go into a publication."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config.table_patterns import TablePatterns
from penstock.source.postgres.catalogue.tables import CatalogueTable
from penstock.source.postgres.subscription.table_selection import select_tables

TABLE = CatalogueTable(
    oid=1,
    schema="public",
    name="orders",
    kind="r",
    persistence="p",
    replica_identity="d",
    primary_key=("id",),
    primary_key_deferrable=False,
    identity_index=False,
    generated_identity=False,
    ancestors=(),
    owner="app",
    owned=True,
    selectable=True,
)
ROOT = replace(TABLE, oid=10, name="events", kind="p")
BRANCH = replace(TABLE, oid=11, name="events_2026", kind="p", ancestors=(10,))
LEAF = replace(TABLE, oid=12, name="events_2026_01", ancestors=(11, 10))
PARTITIONED = [ROOT, BRANCH, LEAF]


def names(tables: tuple[CatalogueTable, ...]) -> list[str]:
    return [table.name for table in tables]


def test_a_root_stands_for_its_partitions() -> None:
    selection = select_tables([TABLE, *PARTITIONED], TablePatterns(["public.*"]))
    assert names(selection.published) == ["orders", "events"]
    assert names(selection.through_root) == ["events_2026_01"]
    assert names(selection.needing_identity) == ["orders", "events", "events_2026_01"]


def test_a_partition_is_published_itself_where_no_ancestor_is() -> None:
    selection = select_tables(PARTITIONED, TablePatterns(["events_2026*"]))
    assert names(selection.published) == ["events_2026"]
    assert names(selection.through_root) == ["events_2026_01"]
    assert names(select_tables(PARTITIONED, TablePatterns(["events_2026_01"])).published) == [
        "events_2026_01"
    ]


def test_a_partition_of_an_excluded_root_is_published_only_by_its_name() -> None:
    patterns = TablePatterns(["*"], ["events"])
    assert names(select_tables(PARTITIONED, patterns).published) == []
    removed = TablePatterns(["*"]).with_rules({("public", "events"): "remove"})
    assert names(select_tables(PARTITIONED, removed).published) == []
    named = TablePatterns(["*", "events_2026_01"], ["events"])
    assert names(select_tables(PARTITIONED, named).published) == ["events_2026_01"]


def test_an_excluded_partition_of_a_published_root_is_reported() -> None:
    selection = select_tables(PARTITIONED, TablePatterns(["*"], ["events_2026_01"]))
    assert names(selection.published) == ["events"]
    assert names(selection.excluded_partitions) == ["events_2026_01"]


def test_insert_only_is_a_part_of_what_is_published() -> None:
    other = replace(TABLE, oid=20, name="audit_log", primary_key=())
    patterns = TablePatterns(["*"], ["audit_old"], ["audit_*", "events", "audit_old"])
    selection = select_tables([TABLE, other, *PARTITIONED], patterns)
    assert names(selection.published) == ["orders", "audit_log", "events"]
    assert names(selection.insert_only) == ["audit_log", "events"]
    # Neither such a table nor a partition of one needs an identity.
    assert names(selection.needing_identity) == ["orders"]
    assert selection.idle_insert_only == ("audit_old",)


def test_insert_only_of_a_partition_whose_root_is_published_means_nothing() -> None:
    selection = select_tables(PARTITIONED, TablePatterns(["*"], [], ["events_2026_01"]))
    assert selection.insert_only == ()
    assert names(selection.needing_identity) == ["events", "events_2026_01"]
    assert selection.idle_insert_only == ("events_2026_01",)


def test_what_postgres_cannot_publish_is_skipped_with_its_reason() -> None:
    tables = [
        replace(TABLE, oid=2, name="view", kind="v"),
        replace(TABLE, oid=3, name="summary", kind="m"),
        replace(TABLE, oid=4, name="far", kind="f"),
        replace(TABLE, oid=5, name="cache", persistence="u"),
    ]
    selection = select_tables(tables, TablePatterns(["*"]))
    assert selection.published == ()
    assert {table.name: table.why_not_published for table in selection.skipped} == {
        "view": "a view",
        "summary": "a materialised view",
        "far": "a foreign table",
        "cache": "unlogged",
    }


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (TABLE, ""),
        (replace(TABLE, primary_key=()), "no primary key"),
        (replace(TABLE, primary_key_deferrable=True), "its primary key is deferrable"),
        (replace(TABLE, replica_identity="n"), "REPLICA IDENTITY NOTHING"),
        (replace(TABLE, replica_identity="i"), "the index of its replica identity is gone"),
        (replace(TABLE, replica_identity="i", identity_index=True), ""),
        (replace(TABLE, replica_identity="f", primary_key=()), ""),
        (replace(TABLE, replica_identity="f", primary_key_deferrable=True), ""),
    ],
)
def test_missing_identity(table: CatalogueTable, reason: str) -> None:
    assert table.missing_identity == reason
