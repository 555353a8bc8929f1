"""What capture writes down: every change of every kind, once, in commit order."""

from __future__ import annotations

import hashlib

import psycopg
import pytest

from penstock.model.value_settings import VALUE_SETTINGS
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.logged_changes import LoggedChange, Row

pytestmark = pytest.mark.every_postgres

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
LONG_TEXT = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 2000) n)"


def brief(changes: list[LoggedChange]) -> list[tuple[str, Row | None]]:
    return [(change.op, change.new) for change in changes]


def _md5(number: int) -> str:
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def test_inserts_updates_deletes_and_key_changes(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO items VALUES (1, 'one'), (2, NULL)",
        "UPDATE items SET name = 'uno' WHERE id = 1",
        "UPDATE items SET id = 3 WHERE id = 2",
        "DELETE FROM items WHERE id = 1",
    )
    changes = pipeline.capture_all()
    assert [(c.op, c.table, c.new, c.old, c.old_is_full) for c in changes] == [
        ("insert", "public.items", {"id": "1", "name": "one"}, None, None),
        ("insert", "public.items", {"id": "2", "name": None}, None, None),
        ("update", "public.items", {"id": "1", "name": "uno"}, None, None),
        ("update", "public.items", {"id": "3", "name": None}, {"id": "2"}, False),
        ("delete", "public.items", None, {"id": "1"}, False),
    ]
    assert [c.position.ordinal for c in changes] == [0, 1, 0, 0, 0]
    assert len({c.xid for c in changes}) == 4


def test_replica_identities(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(
        "CREATE TABLE by_full (id int PRIMARY KEY, name text)",
        "ALTER TABLE by_full REPLICA IDENTITY FULL",
        "CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL UNIQUE, name text)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key",
    )
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO by_full VALUES (1, 'a')",
        "UPDATE by_full SET name = 'b'",
        "DELETE FROM by_full",
        "INSERT INTO by_index VALUES (1, 'x', 'a')",
        "UPDATE by_index SET name = 'b'",
        "UPDATE by_index SET code = 'y'",
        "DELETE FROM by_index",
    )
    changes = pipeline.capture_all()
    assert [(c.op, c.old, c.old_is_full) for c in changes] == [
        ("insert", None, None),
        ("update", {"id": "1", "name": "a"}, True),
        ("delete", {"id": "1", "name": "b"}, True),
        ("insert", None, None),
        ("update", None, None),
        ("update", {"code": "x"}, False),
        ("delete", {"code": "y"}, False),
    ]


def test_truncate_of_several_tables_is_one_change(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(
        ITEMS,
        "CREATE TABLE other (id serial PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY REFERENCES items)",
    )
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO items VALUES (1, 'a')",
        "TRUNCATE items, other RESTART IDENTITY CASCADE",
        "TRUNCATE other",
    )
    changes = pipeline.capture_all()
    assert [(c.op, c.table, c.detail) for c in changes] == [
        ("insert", "public.items", ()),
        ("truncate", "public.child, public.items, public.other", (True, True)),
        ("truncate", "public.other", (False, False)),
    ]


def test_rolled_back_work_is_not_there(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with psycopg.connect(pipeline.url) as conn:
        conn.execute("INSERT INTO items VALUES (1, 'rolled back')")
        conn.rollback()
        conn.execute("INSERT INTO items VALUES (2, 'kept')")
        conn.execute("SAVEPOINT a")
        conn.execute("INSERT INTO items VALUES (3, 'lost')")
        conn.execute("ROLLBACK TO a")
        conn.execute("SAVEPOINT b")
        conn.execute("INSERT INTO items VALUES (4, 'kept')")
        conn.execute("RELEASE b")
        conn.commit()
    changes = pipeline.capture_all()
    assert [(c.new or {})["id"] for c in changes] == ["2", "4"]
    assert [c.position.ordinal for c in changes] == [0, 1]
    assert len({c.xid for c in changes}) == 1


def test_interleaved_transactions_come_whole_and_in_commit_order(
    pipeline: PipelineUnderTest,
) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with psycopg.connect(pipeline.url) as first, psycopg.connect(pipeline.url) as second:
        first.execute("INSERT INTO items VALUES (1, 'first')")
        second.execute("INSERT INTO items VALUES (2, 'second')")
        first.execute("INSERT INTO items VALUES (3, 'first')")
        second.execute("INSERT INTO items VALUES (4, 'second')")
        second.commit()
        first.execute("INSERT INTO items VALUES (5, 'first')")
        first.commit()
    changes = pipeline.capture_all()
    assert [(c.new or {})["id"] for c in changes] == ["2", "4", "1", "3", "5"]


def test_copy_of_many_rows(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with psycopg.connect(pipeline.url) as conn, conn.cursor() as cursor:
        with cursor.copy("COPY items FROM STDIN") as copy:
            for number in range(20_000):
                copy.write_row((number, f"row {number}"))
        conn.commit()
    changes = pipeline.capture_all()
    assert [c.position.ordinal for c in changes] == list(range(20_000))
    assert [c.new for c in changes] == [
        {"id": str(number), "name": f"row {number}"} for number in range(20_000)
    ]


def test_a_large_transaction_is_visible_only_at_its_commit(pipeline: PipelineUnderTest) -> None:
    pipeline.configure(segment_bytes="16 KiB")
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    capture = pipeline.start_capture()
    pipeline.execute("INSERT INTO items VALUES (-1, 'before')")
    pipeline.sync(capture)
    pipeline.execute(
        "INSERT INTO items SELECT n, repeat('x', 2000) FROM generate_series(1, 20000) n",
        "INSERT INTO items VALUES (-2, 'after')",
    )
    # While segments appear one after another, no reader ever sees a part of the transaction.
    seen = set()

    def all_there() -> bool:
        capture.expect_running()
        seen.add(len(pipeline.changes()))
        return max(seen) == 20_002

    wait_until(all_there, "the whole transaction is visible")
    assert seen <= {1, 20_001, 20_002}
    assert capture.stop() == 0
    open_segments = [name for name in pipeline.log.list().segments if name.is_open]
    assert len(open_segments) >= 2
    changes = pipeline.changes()
    assert [(c.new or {})["id"] for c in changes] == [
        "-1",
        *map(str, range(1, 20_001)),
        "-2",
    ]
    assert [c.position.ordinal for c in changes[1:-1]] == list(range(20_000))


def test_logical_messages_are_changes_of_their_own(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with psycopg.connect(pipeline.url) as conn:
        conn.execute("INSERT INTO items VALUES (1, 'a')")
        conn.execute("SELECT pg_logical_emit_message(true, 'inside', '\\x00ff'::bytea)")
        conn.execute("SELECT pg_logical_emit_message(false, 'loose', 'äh')")
        conn.execute("INSERT INTO items VALUES (2, 'b')")
        conn.commit()
        conn.execute("INSERT INTO items VALUES (3, 'never')")
        conn.execute("SELECT pg_logical_emit_message(true, 'rolled back', '')")
        conn.execute("SELECT pg_logical_emit_message(false, 'stays', '')")
        conn.rollback()
    changes = pipeline.capture_all()
    # A message outside of transactions stands where it was emitted, hence before the commit.
    assert [(c.op, c.table, c.detail, c.position.ordinal) for c in changes] == [
        ("message", "loose", (False, "äh".encode()), 0),
        ("insert", "public.items", (), 0),
        ("message", "inside", (True, b"\x00\xff"), 1),
        ("insert", "public.items", (), 2),
        ("message", "stays", (False, b""), 0),
    ]


def test_names_of_any_kind(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(
        'CREATE SCHEMA "Größe und ""Zitat"""',
        'CREATE TABLE "Größe und ""Zitat"""."Ünïcode.表" ("Id" int PRIMARY KEY, "a""b" text)',
        f'CREATE TABLE "{"x" * 63}" ("{"y" * 63}" int PRIMARY KEY)',
    )
    pipeline.subscribe()
    pipeline.execute(
        'INSERT INTO "Größe und ""Zitat"""."Ünïcode.表" VALUES (1, \'値\')',
        f'INSERT INTO "{"x" * 63}" VALUES (7)',  # noqa: S608
    )
    changes = pipeline.capture_all()
    assert [(c.table, c.new) for c in changes] == [
        ('Größe und "Zitat".Ünïcode.表', {"Id": "1", 'a"b': "値"}),
        (f"public.{'x' * 63}", {"y" * 63: "7"}),
    ]


def test_a_table_without_columns(pipeline: PipelineUnderTest) -> None:
    pipeline.execute("CREATE TABLE nothing ()", ITEMS)
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO nothing DEFAULT VALUES",
        "INSERT INTO items VALUES (1, 'a')",
        "TRUNCATE nothing",
    )
    changes = pipeline.capture_all()
    assert [(c.op, c.table, c.new) for c in changes] == [
        ("insert", "public.nothing", {}),
        ("insert", "public.items", {"id": "1", "name": "a"}),
        ("truncate", "public.nothing", None),
    ]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX wide_code_key"])
def test_unchanged_toast_is_unset_not_null(pipeline: PipelineUnderTest, identity: str) -> None:
    pipeline.execute(
        "CREATE TABLE wide (id int PRIMARY KEY, code text NOT NULL UNIQUE, n int, long text)",
        "ALTER TABLE wide ALTER long SET STORAGE EXTERNAL",
        f"ALTER TABLE wide REPLICA IDENTITY {identity}",
    )
    pipeline.subscribe()
    pipeline.execute(
        f"INSERT INTO wide SELECT 1, 'x', 0, {LONG_TEXT}",
        "UPDATE wide SET n = 1",
        "UPDATE wide SET id = 2",
        "UPDATE wide SET long = NULL",
    )
    changes = pipeline.capture_all()
    long = "".join(_md5(n) for n in range(1, 2001))
    inserted, updated, rekeyed, emptied = changes
    assert inserted.new == {"id": "1", "code": "x", "n": "0", "long": long}
    assert updated.unset == rekeyed.unset == ("long",)
    assert updated.new == {"id": "1", "code": "x", "n": "1"}
    assert rekeyed.new == {"id": "2", "code": "x", "n": "1"}
    assert emptied.unset == ()
    assert emptied.new == {"id": "2", "code": "x", "n": "1", "long": None}
    if identity == "FULL":
        # The old image has it whole, so that nobody needs to look the value up.
        assert updated.old == {"id": "1", "code": "x", "n": "0", "long": long}


def test_generated_columns_are_not_sent(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(
        "CREATE TABLE sums (a int PRIMARY KEY, b int, c int GENERATED ALWAYS AS (a + b) STORED)"
    )
    pipeline.subscribe()
    pipeline.execute("INSERT INTO sums VALUES (1, 2)", "UPDATE sums SET b = 3")
    assert brief(pipeline.capture_all()) == [
        ("insert", {"a": "1", "b": "2"}),
        ("update", {"a": "1", "b": "3"}),
    ]


def test_partitions_speak_through_their_root(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(
        "CREATE TABLE events (day date, id int, PRIMARY KEY (day, id)) PARTITION BY RANGE (day)",
        "CREATE TABLE old PARTITION OF events FOR VALUES FROM (MINVALUE) TO ('2026-01-01')",
        # Columns in another order: the root's order counts.
        "CREATE TABLE recent (id int NOT NULL, day date NOT NULL)",
        "ALTER TABLE events ATTACH PARTITION recent FOR VALUES FROM ('2026-01-01') TO (MAXVALUE)",
    )
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO events VALUES ('2025-05-05', 1), ('2026-05-05', 2)",
        "UPDATE events SET day = '2026-06-06' WHERE id = 1",
        "TRUNCATE events",
    )
    changes = pipeline.capture_all()
    assert [(c.op, c.table, c.new) for c in changes] == [
        ("insert", "public.events", {"day": "2025-05-05", "id": "1"}),
        ("insert", "public.events", {"day": "2026-05-05", "id": "2"}),
        # An update across partitions is a delete and an insert.
        ("delete", "public.events", None),
        ("insert", "public.events", {"day": "2026-06-06", "id": "1"}),
        ("truncate", "public.events", None),
    ]


def test_a_schema_change_in_mid_stream(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with psycopg.connect(pipeline.url) as conn:
        conn.execute("INSERT INTO items VALUES (1, 'a')")
        conn.execute("ALTER TABLE items ADD extra int[]")
        conn.execute("INSERT INTO items VALUES (2, 'b', '{1,NULL}')")
        conn.execute("ALTER TABLE items DROP name")
        conn.execute("INSERT INTO items VALUES (3, '{}')")
        conn.commit()
    assert brief(pipeline.capture_all()) == [
        ("insert", {"id": "1", "name": "a"}),
        ("insert", {"id": "2", "name": "b", "extra": "{1,NULL}"}),
        ("insert", {"id": "3", "extra": "{}"}),
    ]


def test_values_come_in_one_text_form_whatever_the_roles_settings(
    pipeline: PipelineUnderTest,
) -> None:
    pipeline.execute(
        "CREATE TABLE forms (id int PRIMARY KEY, t timestamptz, i interval, b bytea, f float8)"
    )
    with psycopg.connect(pipeline.url, autocommit=True) as conn:
        for setting, value in (
            ("datestyle", "'German'"),
            ("intervalstyle", "'iso_8601'"),
            ("timezone", "'Asia/Tokyo'"),
            ("bytea_output", "'escape'"),
            ("extra_float_digits", "-5"),
        ):
            conn.execute(f'ALTER DATABASE "{conn.info.dbname}" SET {setting} = {value}'.encode())
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO forms VALUES"
        " (1, '2026-03-04 05:06:07.5+00', '1 day 2 hours', '\\x00ff', 0.1::float8 + 0.2)"
    )
    (change,) = pipeline.capture_all()
    assert change.new == {
        "id": "1",
        "t": "2026-03-04 05:06:07.5+00",
        "i": "1 day 02:00:00",
        "b": "\\x00ff",
        "f": "0.30000000000000004",
    }
    assert len(VALUE_SETTINGS) == 9


def test_only_chosen_tables_are_there(pipeline: PipelineUnderTest) -> None:
    pipeline.configure(include=("public.*",), exclude=("public.audit_*",))
    pipeline.execute(ITEMS, "CREATE TABLE audit_items (id int PRIMARY KEY)")
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO audit_items VALUES (1)",
        "INSERT INTO items VALUES (1, 'a')",
        "TRUNCATE audit_items, items",
    )
    changes = pipeline.capture_all()
    assert [(c.op, c.table) for c in changes] == [
        ("insert", "public.items"),
        ("truncate", "public.items"),
    ]
