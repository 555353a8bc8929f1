"""Tables of which only inserts and truncates are followed, from the application's side too."""

from __future__ import annotations

import psycopg
import pytest
import yaml

from tests.fix_pipeline import PipelineUnderTest

pytestmark = pytest.mark.every_postgres


def follow(pipeline: PipelineUnderTest, *insert_only: str) -> None:
    """Make publications and slot with these patterns in insert_only."""
    content = yaml.safe_load(pipeline.file.read_text())
    content["source"]["tables"]["insert_only"] = list(insert_only)
    pipeline.file.write_text(yaml.safe_dump(content))
    pipeline.subscribe()


def captured(pipeline: PipelineUnderTest) -> list[tuple[str, str, str | None]]:
    """Operation, table and the new row's note."""
    return [
        (change.op, change.table, (change.new or {}).get("note"))
        for change in pipeline.capture_all()
    ]


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE audit_log (id int, note text)",
        "CREATE TABLE audit_log (id int PRIMARY KEY DEFERRABLE, note text)",
        (
            "CREATE TABLE audit_log (id int PRIMARY KEY, note text);"
            "ALTER TABLE audit_log REPLICA IDENTITY NOTHING"
        ),
        # With an identity as well: what is not followed is the user's choice.
        "CREATE TABLE audit_log (id int PRIMARY KEY, note text)",
    ],
    ids=["no key", "deferrable", "nothing", "with a key"],
)
def test_the_application_goes_on_and_only_inserts_and_truncates_come(
    pipeline: PipelineUnderTest, definition: str
) -> None:
    pipeline.execute(definition, "CREATE TABLE items (id int PRIMARY KEY, note text)")
    follow(pipeline, "audit_log")
    pipeline.execute(
        "INSERT INTO audit_log VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO items VALUES (1, 'x')",
        "UPDATE audit_log SET note = 'changed', id = id + 10",
        "DELETE FROM audit_log WHERE id = 11",
        "UPDATE items SET note = 'y'",
        "INSERT INTO audit_log VALUES (3, 'c')",
        "DELETE FROM items",
        "TRUNCATE items, audit_log",
    )
    log, items = "public.audit_log", "public.items"
    assert captured(pipeline) == [
        ("insert", log, "a"),
        ("insert", log, "b"),
        ("insert", items, "x"),
        ("update", items, "y"),
        ("insert", log, "c"),
        ("delete", items, None),
        ("truncate", f"{log}, {items}", None),
    ]


def test_without_the_second_publication_the_application_would_fail(
    pipeline: PipelineUnderTest,
) -> None:
    """What the tests above rest on: the same statements, the table in the first publication."""
    pipeline.execute("CREATE TABLE audit_log (id int, note text)")
    follow(pipeline)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        pipeline.execute("INSERT INTO audit_log VALUES (1, 'a')", "DELETE FROM audit_log")


def test_nothing_but_such_tables(pipeline: PipelineUnderTest) -> None:
    pipeline.execute("CREATE TABLE audit_log (note text)")
    follow(pipeline, "*.*")
    pipeline.execute("INSERT INTO audit_log VALUES ('a')", "DELETE FROM audit_log")
    assert captured(pipeline) == [("insert", "public.audit_log", "a")]


def test_partitions_of_such_a_table(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(
        "CREATE TABLE events (year int, note text) PARTITION BY LIST (year)",
        "CREATE TABLE events_25 PARTITION OF events FOR VALUES IN (2025)",
        "CREATE TABLE events_26 PARTITION OF events FOR VALUES IN (2026)",
    )
    follow(pipeline, "events")
    pipeline.execute(
        "INSERT INTO events VALUES (2025, 'a')",
        "UPDATE events SET note = 'b'",
        # Postgres moves a row by a delete and an insert; docs/source_setup.md says so.
        "UPDATE events SET year = 2026",
        "DELETE FROM events_26",
        "TRUNCATE events",
    )
    assert captured(pipeline) == [
        ("insert", "public.events", "a"),
        ("insert", "public.events", "b"),
        ("truncate", "public.events", None),
    ]
