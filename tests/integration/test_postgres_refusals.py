"""Rows that the target refuses: named, never dropped; set aside as dead letters where asked for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from penstock.decode.changes import ChangeSet
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError, Fenced, TableRefused
from penstock.model.lsn import Position
from penstock.model.table_definition import TypeDefinition, TypeName
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import definition, deliver, deliver_cut
from tests.fix_postgres import drop_database
from tests.fix_target import Target

ITEMS = table("items", Column("id", "int8", key=True), Column("v", "text"), Column("big", "text"))
LOOSE = table("loose", Column("a", "text"), Column("b", "text"), identity="f")
OTHER = table("other", Column("id", "int8", key=True))


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


def letters(target: Target) -> list[tuple[object, ...]]:
    return target.all(
        "SELECT source_table, op, row_values::text::jsonb, sqlstate FROM penstock.dead_letter"
        " WHERE pipeline = 'shop' ORDER BY commit_lsn, ordinal, id"
    )


def without(run: ChangeSet, oid: int) -> ChangeSet:
    """What the pipeline does with a table that has failed."""
    return replace(run, tables=tuple(t for t in run.tables if t.table.oid != oid))


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        ("ALTER TABLE items ADD CHECK (v <> 'bad')", 'violates check constraint "items_v_check"'),
        ("ALTER TABLE items ALTER big SET NOT NULL", 'null value in column "big"'),
        ("CREATE UNIQUE INDEX one ON items ((v = 'bad')) WHERE big IS NULL", "duplicate key"),
        (
            "ALTER TABLE items ADD f float4 GENERATED ALWAYS AS (id::float4 * 1e37) STORED",
            "out of range",
        ),
    ],
)
def test_the_table_stops_and_the_others_go_on(
    target: Target, builder: ChangeBuilder, statement: str, cause: str
) -> None:
    destination = target.opened(definition(ITEMS), definition(OTHER))
    with builder.transaction():
        builder.insert(ITEMS, "1", "good", "")
        builder.insert(OTHER, "1")
    deliver_cut(destination, builder)
    reached = builder.frontier
    target.execute(statement)
    with builder.transaction():
        for number in range(2, 9):
            builder.insert(ITEMS, str(number), "good", "")
        builder.insert(ITEMS, "99", "bad", None)
        builder.insert(ITEMS, "98", "bad", None)
        builder.update(ITEMS, "1", "updated", UNSET)
        builder.insert(OTHER, "2")
    run = builder.cut()
    position = Position(run.tables[0].commit_lsn[0], 7 if "UNIQUE" not in statement else 8)
    key = 98 if "UNIQUE" in statement else 99

    with pytest.raises(TableRefused) as refused:
        deliver(destination, builder.frontier, [run])
    message = refused.value.message
    named = f"the destination refused the row with id = {key}, changed at {position}: "
    assert message.startswith(f"table public.items: {named}")
    assert cause in message
    assert "penstock tables retry" in refused.value.remedy
    assert refused.value.table == ITEMS.oid
    assert target.rows("items", "id, v") == {("1", "good"): 1}
    assert target.rows("other") == {("1",): 1}
    assert destination.committed() == Watermarks(reached)

    behind = {ITEMS.oid: reached}
    deliver(destination, builder.frontier, [without(run, ITEMS.oid)], behind=behind)
    assert target.rows("other") == {("1",): 1, ("2",): 1}
    assert destination.committed() == Watermarks(builder.frontier, behind)


def test_a_domain_at_the_target_that_allows_less(target: Target, builder: ChangeBuilder) -> None:
    wanted = definition(ITEMS)
    domain = TypeDefinition(
        "public", "word", "domain", base=TypeName("pg_catalog", "text"), constraints=()
    )
    columns = tuple(
        replace(column, type=TypeName("public", "word")) if column.name != "big" else column
        for column in wanted.columns
    )
    # The key, too: a value that it does not allow cannot even be looked for.
    of = replace(wanted, columns=columns, types=(domain,))
    texts = table("items", *(replace(c, type="text") for c in ITEMS.columns))
    destination = target.opened(of)
    target.execute("ALTER DOMAIN word ADD CHECK (VALUE <> 'bad')")
    with builder.transaction():
        builder.insert(texts, "1", "bad", "")
    with pytest.raises(TableRefused, match=r"id = 1, changed at .*violates check constraint"):
        deliver_cut(destination, builder)
    with builder.transaction():
        builder.update(texts, "bad", "good", "")
    with pytest.raises(TableRefused, match=r"a row changed up to .*violates check constraint"):
        deliver_cut(destination, builder)
    assert target.rows("items") == {}


def test_a_target_that_is_too_narrow_is_refused_before_any_row(target: Target) -> None:
    target.execute("CREATE TABLE items (id int PRIMARY KEY, v text, big text)")
    with pytest.raises(DestinationError, match="column id is integer at the destination and bigin"):
        target.opened(definition(ITEMS))


class TestDeadLetters:
    @pytest.fixture(autouse=True)
    def _checked(self, target: Target, builder: ChangeBuilder) -> None:
        destination = target.opened(definition(ITEMS), definition(LOOSE))
        target.execute("ALTER TABLE items ADD CHECK (v <> 'bad'), ADD mine text DEFAULT 'm'")
        target.execute("ALTER TABLE loose ADD CHECK (a <> 'bad')")
        with builder.transaction():
            for number in range(4):
                builder.insert(ITEMS, str(number), "good", f"big {number}")
        deliver_cut(destination, builder)
        target.execute("UPDATE items SET mine = 'kept'")

    def test_just_the_refused_rows_whole(self, target: Target, builder: ChangeBuilder) -> None:
        destination = target.opened(definition(ITEMS), definition(LOOSE), dead_letter=True)
        with builder.transaction():
            builder.insert(ITEMS, "10", "bad", "b")
            builder.insert(ITEMS, "11", "good", "b")
            builder.update(ITEMS, "1", "bad", UNSET)
            builder.update(ITEMS, "12", "bad", UNSET, key=["2", None, None])
            builder.update(ITEMS, "3", "updated", UNSET)
            builder.insert(LOOSE, "bad", None)
            builder.insert(LOOSE, "good", None)
            builder.insert(LOOSE, "bad", None)
            # So that equal rows are counted.
            builder.delete(LOOSE, full=["nowhere", None])
        deliver_cut(destination, builder)
        assert target.rows("items") == {
            ("0", "good", "big 0", "kept"): 1,
            ("1", "good", "big 1", "kept"): 1,
            ("2", "good", "big 2", "kept"): 1,
            ("3", "updated", "big 3", "kept"): 1,
            ("11", "good", "b", "m"): 1,
        }
        assert target.rows("loose") == {("good", None): 1}
        check = "23514"
        assert letters(target) == [
            ("public.items", "insert", {"id": "10", "v": "bad", "big": "b"}, check),
            ("public.items", "update", {"id": "1", "v": "bad", "big": "big 1"}, check),
            ("public.items", "update", {"id": "12", "v": "bad", "big": "big 2"}, check),
            *[("public.loose", "insert", {"a": "bad", "b": None}, check)] * 2,
        ]

    def test_an_update_of_a_row_that_became_a_letter(
        self, target: Target, builder: ChangeBuilder
    ) -> None:
        destination = target.opened(definition(ITEMS), definition(LOOSE), dead_letter=True)
        for values in (("10", "bad", "b"), ("10", "part", UNSET)):
            with builder.transaction():
                if UNSET in values:
                    builder.update(ITEMS, *values)
                    builder.update(ITEMS, "0", "on", UNSET)
                else:
                    builder.insert(ITEMS, *values)
            deliver_cut(destination, builder)
        assert letters(target)[1:] == [
            ("public.items", "update", {"id": "10", "v": "part"}, "P0002")
        ]
        assert ("0", "on", "big 0", "kept") in target.rows("items")
        with builder.transaction():
            builder.update(ITEMS, "10", "whole", "again")
        deliver_cut(destination, builder)
        assert ("10", "whole", "again", "m") in target.rows("items")

    def test_a_row_in_the_way_stays_where_the_new_one_is_refused(
        self, target: Target, builder: ChangeBuilder
    ) -> None:
        destination = target.opened(definition(ITEMS), definition(LOOSE), dead_letter=True)
        with builder.transaction():
            builder.insert(ITEMS, "0", "bad", "b")
            builder.delete(ITEMS, key=["1", None, None])
            builder.insert(ITEMS, "1", "bad", "b")
        deliver_cut(destination, builder)
        rows = target.rows("items", "id, v, mine")
        assert ("0", "good", "kept") in rows
        assert not any(row[0] == "1" for row in rows)
        assert len(letters(target)) == 2

    def test_none_of_a_batch_that_was_not_committed(
        self, target: Target, builder: ChangeBuilder
    ) -> None:
        destination = target.opened(definition(ITEMS), definition(LOOSE), dead_letter=True)
        with builder.transaction():
            builder.insert(ITEMS, "10", "bad", "b")
        receipt = destination.writer().write([builder.cut()])
        target.opened(definition(ITEMS), definition(LOOSE), dead_letter=True)
        with pytest.raises(Fenced):
            destination.commit([receipt], Watermarks(builder.frontier))
        assert letters(target) == []


@pytest.fixture
def latin(pg_server: EmbeddedPostgres) -> Iterator[Target]:
    name = f"latin_{uuid.uuid4().hex}"
    with psycopg.connect(pg_server.url(), autocommit=True) as conn:
        conn.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'".encode()
        )
    with Target(pg_server.url(name)) as made:
        yield made
    drop_database(pg_server, name)


def _latin_changes(builder: ChangeBuilder) -> ChangeSet:
    with builder.transaction():
        builder.insert(ITEMS, "1", "é", "")
        builder.insert(ITEMS, "2", "🎉", "")
        builder.insert(LOOSE, "🎉", None)
        builder.insert(LOOSE, "🎉", None)
        builder.insert(LOOSE, "ß", None)
        builder.delete(LOOSE, full=["ß", None])
        builder.update(ITEMS, "7", "🎉", UNSET)
    return builder.cut()


class TestACharacterThatTheTargetCannotHold:
    def test_stops_the_table(self, latin: Target, builder: ChangeBuilder) -> None:
        destination = latin.opened(definition(ITEMS), definition(LOOSE))
        with pytest.raises(TableRefused, match=r"items.* id = 2, .* no equivalent in encoding"):
            deliver(destination, builder.frontier, [_latin_changes(builder)])
        assert latin.rows("items") == {}

    def test_or_becomes_a_letter(self, latin: Target, builder: ChangeBuilder) -> None:
        destination = latin.opened(definition(ITEMS), definition(LOOSE), dead_letter=True)
        run = _latin_changes(builder)
        # Staged twice, as by a task that is tried again.
        destination.writer().write([run])
        deliver(destination, builder.frontier, [run])
        assert latin.rows("items") == {("1", "é", ""): 1}
        assert latin.rows("loose") == {}
        found = latin.all("SELECT row_values::text FROM penstock.dead_letter ORDER BY ordinal, id")
        assert [text for (text,) in found] == [
            '{"id": "2", "v": "\\ud83c\\udf89", "big": ""}',
            *['{"a": "\\ud83c\\udf89", "b": null}'] * 2,
            '{"id": "7", "v": "\\ud83c\\udf89"}',
        ]

    def test_letters_that_a_crash_took_are_staged_again(
        self, latin: Target, builder: ChangeBuilder
    ) -> None:
        destination = latin.opened(definition(ITEMS), definition(LOOSE), dead_letter=True)
        run = _latin_changes(builder)
        receipt = destination.writer().write([run])
        latin.execute("TRUNCATE penstock.stage_dead_letter")
        with pytest.raises(DestinationError, match="dead letters that were staged"):
            destination.commit([receipt], Watermarks(builder.frontier))
        assert latin.rows("items") == {}
        deliver(destination, builder.frontier, [run])
        assert latin.all("SELECT count(*) FROM penstock.dead_letter") == [(4,)]


def test_a_table_whose_columns_changed_is_refused_before_it_is_staged(
    target: Target, builder: ChangeBuilder
) -> None:
    wider = table("items", *ITEMS.columns[:2], Column("new", "text"))
    destination = target.opened(definition(ITEMS))
    with builder.transaction():
        builder.insert(wider, "1", "a", "b")
    with pytest.raises(TableRefused, match="columns gone: big; columns new: new") as refused:
        deliver_cut(destination, builder)
    assert refused.value.table == ITEMS.oid
