"""Indexes and constraints of targets that Penstock made: after the data, under the target's names.

What a destination cannot make is noted, and replication goes on without it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.destination.postgres.destination import PostgresDestination
from penstock.model.table_definition import TableDefinition
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.catalogue.tables import read_tables
from penstock.testing.change_builder import Column, Table
from penstock.testing.contract.chunk_rows import ChunkRows
from tests.application_session import connect
from tests.fix_target import Target, as_texts

SHOP = """
CREATE SCHEMA shop;
CREATE TYPE shop.mood AS ENUM ('sad', 'ok');
CREATE TABLE shop.customers (
    id int PRIMARY KEY,
    email text NOT NULL CONSTRAINT "one email" UNIQUE,
    mood shop.mood CHECK (mood <> 'sad'::shop.mood),
    "Name" text
);
CREATE TABLE shop.orders (
    id int PRIMARY KEY,
    customer int REFERENCES shop.customers ON DELETE CASCADE,
    period int4range,
    total numeric,
    mood shop.mood,
    EXCLUDE USING gist (period WITH &&)
);
CREATE INDEX "by Name" ON shop.customers (lower("Name") COLLATE "C" DESC, id)
    INCLUDE (email) WHERE mood = 'ok'::shop.mood;
CREATE INDEX orders_total ON shop.orders USING brin (total);
CREATE UNIQUE INDEX one_open ON shop.orders (customer) WHERE total IS NULL;
"""


@pytest.fixture
def shop(database: str) -> dict[str, TableDefinition]:
    return source_tables(database, SHOP)


def source_tables(url: str, statements: str) -> dict[str, TableDefinition]:
    with connect(url) as conn:
        conn.execute(statements.encode())
        names = [found.table_name for found in read_tables(conn)]
        return {found.name: as_texts(found) for found in read_definitions(conn, names, ())}


def made(target: Target, schema: str) -> set[str]:
    """Indexes and constraints, as the server shows them."""
    indexes = target.all(
        f"SELECT indexname || ': ' || substr(indexdef, strpos(indexdef, ' USING'))"  # noqa: S608
        f" FROM pg_indexes WHERE schemaname = '{schema}'"
    )
    constraints = target.all(
        f"SELECT conname || ': ' || pg_get_constraintdef(oid) FROM pg_constraint"  # noqa: S608
        f" WHERE connamespace = '{schema}'::regnamespace AND contype IN ('c', 'f', 'u', 'x')"
    )
    return {text for (text,) in (*indexes, *constraints)}


KEYS = {
    "customers_pkey:  USING btree (id)",
    "orders_pkey:  USING btree (id)",
}
BY_NAME = (
    'by Name:  USING btree (lower("Name") COLLATE "C" DESC, id) INCLUDE (email)'
    " WHERE (mood = 'ok'::crm.mood)"
)
OTHERS = {
    BY_NAME,
    "one email:  USING btree (email)",
    "one email: UNIQUE (email)",
    "customers_mood_check: CHECK ((mood <> 'sad'::crm.mood))",
    "orders_total:  USING brin (total)",
    "one_open:  USING btree (customer) WHERE (total IS NULL)",
    "orders_period_excl:  USING gist (period)",
    "orders_period_excl: EXCLUDE USING gist (period WITH &&)",
    "orders_customer_fkey: FOREIGN KEY (customer) REFERENCES crm.customers(id) ON DELETE CASCADE",
}


def opened(target: Target, shop: dict[str, TableDefinition]) -> PostgresDestination:
    return target.opened(*shop.values(), schema="crm")


def chunk(of: TableDefinition, *rows: tuple[str | None, ...]) -> ChunkRows:
    kinds = {"integer": "int4", "numeric": "numeric", "int4range": "int4range"}
    columns = [
        Column(column.name, kinds.get(column.type.name, "text"), key=column.name == "id")
        for column in of.columns
    ]
    return ChunkRows(Table(of.oid, of.schema, of.name, "d", tuple(columns)), "0", rows)


CUSTOMERS = [(str(i), f"{i}@x", "ok", "N") for i in range(3)]
ORDERS = [(str(i), str(i % 3), f"[{i},{i + 1})", None if i < 2 else str(i), None) for i in range(5)]


def test_without_a_copy_they_are_there_at_once(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    destination = opened(target, shop)
    assert made(target, "crm") == KEYS | OTHERS
    assert all(not destination.notes(table.oid) for table in shop.values())
    # And the next start finds all of it.
    opened(target, shop)
    assert made(target, "crm") == KEYS | OTHERS


def test_they_go_before_a_copy_and_come_after_it(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    destination = opened(target, shop)
    customers, orders = shop["customers"], shop["orders"]
    for table in (customers, orders):
        destination.truncate_table(table)
    assert made(target, "crm") == set()
    destination.chunk_writer(customers).write(chunk(customers, *CUSTOMERS))
    # A restart in the middle of it.
    destination = opened(target, shop)
    destination.chunk_writer(orders).write(chunk(orders, *ORDERS))
    for _ in range(2):
        destination.finish_copy(customers)
        destination.finish_copy(orders)
    assert made(target, "crm") == KEYS
    for _ in range(2):
        destination.complete_table(orders)
    assert not any("fkey" in text for text in made(target, "crm"))
    destination.complete_table(customers)
    assert made(target, "crm") == KEYS | OTHERS
    assert target.all("SELECT DISTINCT convalidated FROM pg_constraint WHERE contype = 'f'") == [
        (True,)
    ]
    assert len(target.rows("crm.orders")) == 5
    # One of them again: the foreign key to it goes, and comes back.
    destination.truncate_table(customers)
    assert made(target, "crm") == {text for text in KEYS | OTHERS if "orders_" in text} - {
        text for text in OTHERS if "fkey" in text
    } | {text for text in OTHERS if "one_open" in text}
    destination.chunk_writer(customers).write(chunk(customers, *CUSTOMERS))
    destination.finish_copy(customers)
    destination.complete_table(customers)
    assert made(target, "crm") == KEYS | OTHERS


def test_a_crash_between_two_of_them(target: Target, shop: dict[str, TableDefinition]) -> None:
    destination = opened(target, shop)
    customers = shop["customers"]
    destination.truncate_table(customers)
    destination.finish_copy(customers)
    # As if only the first had been made.
    half = {**shop, "customers": customers}
    destination.complete_table(replace(customers, constraints=()))
    assert "one email: UNIQUE (email)" not in made(target, "crm")
    destination = opened(target, half)
    destination.complete_table(customers)
    assert made(target, "crm") == KEYS | OTHERS


def test_what_a_person_did_stays(target: Target, shop: dict[str, TableDefinition]) -> None:
    destination = opened(target, shop)
    orders = shop["orders"]
    target.execute("DROP INDEX crm.orders_total; CREATE INDEX own ON crm.orders (period)")
    destination.complete_table(orders)
    destination.truncate_table(orders)
    assert {text.partition(":")[0] for text in made(target, "crm") if "own" in text} == {"own"}
    destination.finish_copy(orders)
    destination.complete_table(orders)
    # A copy makes the table as the source has it.
    assert made(target, "crm") == KEYS | OTHERS | {"own:  USING btree (period)"}


def test_a_target_that_was_there_gets_none(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    target.execute(
        "CREATE SCHEMA crm; CREATE TYPE crm.mood AS ENUM ('sad', 'ok');"
        "CREATE TABLE crm.orders (id int PRIMARY KEY, customer int,"
        " period int4range, total numeric, mood crm.mood); CREATE INDEX own ON crm.orders (total)"
    )
    destination = opened(target, shop)
    orders = shop["orders"]
    destination.truncate_table(orders)
    destination.chunk_writer(orders).write(chunk(orders, *ORDERS))
    destination.finish_copy(orders)
    destination.complete_table(orders)
    found = {text.partition(":")[0] for text in made(target, "crm") if "one e" not in text}
    assert found == {"customers_pkey", "by Name", "customers_mood_check", "orders_pkey", "own"}
    assert len(target.rows("crm.orders")) == 5


def test_what_cannot_be_made_is_noted(
    database: str, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    tables = source_tables(
        database,
        "CREATE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 * 2';"
        "CREATE TABLE odd (id int PRIMARY KEY, n int CHECK (twice(n) > 0), m int UNIQUE);"
        "CREATE INDEX odd_twice ON odd (twice(n)); CREATE INDEX odd_n ON odd (n)",
    )
    odd = tables["odd"]
    destination = target.opened(odd)
    destination.truncate_table(odd)
    caplog.clear()
    destination.finish_copy(odd)
    destination.complete_table(odd)
    notes = list(destination.notes(odd.oid))
    assert [note.partition(":")[0] for note in notes] == [
        "public.odd goes without the index odd_twice",
        "public.odd goes without the constraint odd_n_check",
    ]
    assert all("function public.twice(integer) does not exist" in note for note in notes)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == notes
    found = {text.partition(":")[0] for text in made(target, "public")}
    assert found == {"odd_pkey", "odd_n", "odd_m_key"}


def with_orders_alone(target: Target, shop: dict[str, TableDefinition]) -> PostgresDestination:
    """Rows of customers come later, as those of a table that stands elsewhere."""
    destination = opened(target, shop)
    orders = shop["orders"]
    destination.truncate_table(orders)
    destination.chunk_writer(orders).write(chunk(orders, *ORDERS))
    destination.finish_copy(orders)
    destination.complete_table(orders)
    assert validated(target) == [False]
    assert all(not destination.notes(table.oid) for table in shop.values()), "it may hold soon"
    return destination


def validated(target: Target) -> list[bool]:
    rows = target.all("SELECT convalidated FROM pg_constraint WHERE contype = 'f' ORDER BY conname")
    return [is_valid for (is_valid,) in rows]


def bring_customers(target: Target) -> None:
    target.execute(
        "INSERT INTO crm.customers SELECT n, n || '@x', 'ok', 'N' FROM generate_series(0, 2) n"
    )


@pytest.mark.parametrize("is_new_run", [False, True], ids=["at once", "in the next run"])
def test_a_foreign_key_is_validated_when_both_tables_stand_at_one_point(
    target: Target, shop: dict[str, TableDefinition], is_new_run: bool
) -> None:
    destination = with_orders_alone(target, shop)
    customers, orders = shop["customers"].oid, shop["orders"].oid
    bring_customers(target)
    # One end of it is not enough.
    destination.complete_together({orders}, {orders})
    assert validated(target) == [False]
    if is_new_run:
        destination = opened(target, shop)
    new = {customers, orders} if is_new_run else {customers}
    with connect(target.url, autocommit=False) as conn:
        # As a commit under way has them.
        conn.execute("SELECT FROM penstock.progress FOR UPDATE")
        conn.execute("UPDATE crm.orders SET total = 7; UPDATE crm.customers SET mood = 'ok'")
        destination.complete_together({customers, orders}, new)
    assert validated(target) == [True]
    assert all(not destination.notes(table.oid) for table in shop.values())
    assert made(target, "crm") == KEYS | OTHERS


def test_a_foreign_key_that_does_not_hold_stays_unvalidated(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    destination = with_orders_alone(target, shop)
    customers, orders = shop["customers"].oid, shop["orders"].oid
    both = {customers, orders}
    destination.complete_together(both, both)
    (note,) = destination.notes(orders)
    assert "the foreign key orders_customer_fkey stays NOT VALID: insert or update" in note
    assert destination.notes(customers) == ()
    assert not destination.is_outdated(orders, note)
    bring_customers(target)
    # Nothing has come to that point since.
    destination.complete_together({*both, 7}, {7})
    assert validated(target) == [False]
    assert destination.notes(orders) == (note,)
    destination.complete_together(both, {orders})
    assert validated(target) == [True]
    assert destination.notes(orders) == ()
    assert destination.is_outdated(orders, note)
    other = "crm.orders goes without the index by_total: it is not there"
    assert not destination.is_outdated(orders, other)


def test_a_note_on_a_foreign_key_goes_with_the_next_run(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    destination = with_orders_alone(target, shop)
    both = {table.oid for table in shop.values()}
    destination.complete_together(both, both)
    orders = shop["orders"].oid
    (note,) = destination.notes(orders)
    destination = opened(target, shop)
    destination.complete_together(both, both)
    assert destination.notes(orders) == (note,)
    # A person has made it hold, and validates it at once.
    bring_customers(target)
    target.execute("ALTER TABLE crm.orders VALIDATE CONSTRAINT orders_customer_fkey")
    destination = opened(target, shop)
    destination.complete_together(both, both)
    assert destination.notes(orders) == ()
    assert destination.is_outdated(orders, note)


def test_a_foreign_key_that_the_source_does_not_vouch_for(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    orders = shop["orders"]
    loose = tuple(
        replace(key, definition=f"{key.definition} NOT VALID") if key.kind == "foreign" else key
        for key in orders.constraints
    )
    shop["orders"] = replace(orders, constraints=loose)
    destination = with_orders_alone(target, shop)
    bring_customers(target)
    both = {table.oid for table in shop.values()}
    destination.complete_together(both, both)
    assert validated(target) == [False]
    assert destination.notes(orders.oid) == ()


def test_a_history_has_no_foreign_keys_to_validate(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    destination = target.opened(*shop.values(), schema="crm", mode="append")
    both = {table.oid for table in shop.values()}
    destination.complete_together(both, both)
    assert not any("fkey" in text for text in made(target, "crm"))


def test_names_that_are_taken_and_tables_that_are_renamed(database: str, target: Target) -> None:
    tables = source_tables(
        database,
        "CREATE SCHEMA a; CREATE SCHEMA b;"
        "CREATE TABLE a.one (id int PRIMARY KEY, v int);"
        "CREATE TABLE b.two (id int PRIMARY KEY, v int, up int REFERENCES b.two);"
        "CREATE INDEX by_v ON a.one (v); CREATE INDEX by_v ON b.two (v);"
        "ALTER TABLE b.two ADD CONSTRAINT to_one FOREIGN KEY (v) REFERENCES a.one",
    )
    target.opened(*tables.values(), schema="all", tables={"a.one": '"First %"', "b.two": '"2nd"'})
    found = made(target, "all")
    assert {text.partition(":")[0] for text in found} == {
        *("First %_pkey", "2nd_pkey", "by_v", "by_v1", "to_one", "two_up_fkey")
    }
    assert 'to_one: FOREIGN KEY (v) REFERENCES "all"."First %"(id)' in found
    assert 'two_up_fkey: FOREIGN KEY (up) REFERENCES "all"."2nd"(id)' in found


def test_a_table_whose_rows_are_found_by_a_unique_index(database: str, target: Target) -> None:
    tables = source_tables(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v int);"
        "CREATE UNIQUE INDEX t_code ON t (code);"
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code",
    )
    of = tables["t"]
    destination = target.opened(of)
    destination.truncate_table(of)
    assert made(target, "public") == set()
    destination.finish_copy(of)
    assert made(target, "public") == {"t_code_idx:  USING btree (code)"}
    destination.complete_table(of)
    assert made(target, "public") == {
        "t_code_idx:  USING btree (code)",
        "t_pkey:  USING btree (id)",
    }


@pytest.fixture
def partitioned(database: str) -> TableDefinition:
    tables = source_tables(
        database,
        "CREATE TABLE p (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);"
        "CREATE TABLE p1 PARTITION OF p DEFAULT; CREATE INDEX p_at ON p (at)",
    )
    return tables["p"]


def test_a_partitioned_table_becomes_one_table(
    target: Target, partitioned: TableDefinition
) -> None:
    target.opened(partitioned)
    assert made(target, "public") == {
        "p_pkey:  USING btree (id, at)",
        "p_at:  USING btree (at)",
    }


def test_foreign_keys_would_be_in_our_own_way_while_triggers_are_on(
    target: Target, shop: dict[str, TableDefinition]
) -> None:
    destination = target.opened(*shop.values(), schema="crm", disable_triggers=False)
    assert made(target, "crm") == {text for text in KEYS | OTHERS if "fkey" not in text}
    destination.complete_table(shop["orders"])
    (note,) = destination.notes(shop["orders"].oid)
    assert note.startswith("crm.orders: foreign keys are not made, since triggers stay on")
