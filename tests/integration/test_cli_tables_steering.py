"""`penstock tables add | remove | resync | pause | resume | cancel`, on real databases."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock.config import load_pipeline
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import DataSync, Errored, FinishedCopy, Init, Ready
from penstock.store import PostgresStore, Wish, pipeline_store
from tests.fix_cli import CommandLine

ORDERS, ITEMS, ODD = 16_385, 16_390, 16_400


@pytest.fixture
def source(database: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            'CREATE SCHEMA other; CREATE TABLE other."My.Table" (id int PRIMARY KEY);'
            "CREATE TABLE other.more (id int PRIMARY KEY);"
            "CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE items (id int PRIMARY KEY);"
        )
        yield conn


@pytest.fixture
def store(penstock: CommandLine) -> Iterator[PostgresStore]:
    """The pipeline's store: orders being copied, items ready, one errored."""
    with pipeline_store(load_pipeline(penstock.file)) as store:
        store.open()
        names = {ORDERS: ("public", "orders"), ITEMS: ("public", "items"), ODD: ("o", "My.Table")}
        store.store_table_schemas(
            [TableDefinition(oid, *name, "d", ()) for oid, name in names.items()], 100
        )
        store.update_table_states(dict.fromkeys(names, Init()))
        store.update_table_states({ORDERS: DataSync(), ITEMS: Ready(), ODD: Errored("no")})
        yield store


@pytest.mark.usefixtures("source")
class TestAddAndRemove:
    def rules(self, penstock: CommandLine) -> dict[tuple[str, str], str]:
        with pipeline_store(load_pipeline(penstock.file)) as store:
            return dict(store.load_rules())

    def test_beyond_the_patterns_and_back(self, penstock: CommandLine) -> None:
        """Also before the first run: the rule is there when it starts."""
        tables = ("other.more", 'other."My.Table"', "orders", "other.more")
        code, text, _ = penstock("tables", "add", tables=tables)
        assert code == 0
        assert text.splitlines()[:3] == [
            "other.more: is to be followed",
            'other."My.Table": is to be followed',
            "public.orders: is followed already",
        ]
        assert "within seconds" in text
        assert "The rows that exist are copied first." in text
        assert self.rules(penstock) == {("other", "more"): "add", ("other", "My.Table"): "add"}
        code, text, _ = penstock("tables", "remove", tables=("other.more", "items"))
        assert code == 0
        assert "public.items: is to be left out\n" in text
        assert "Its rows stay at the destination as they are" in text
        # What only a rule brought needs no rule to leave.
        assert self.rules(penstock) == {("other", "My.Table"): "add", ("public", "items"): "remove"}
        assert penstock("tables", "remove", tables=("items",))[1] == (
            "public.items: is not followed anyway\n"
        )
        assert "public.items: is to be followed" in penstock("tables", "add", tables=("items",))[1]
        assert self.rules(penstock) == {("other", "My.Table"): "add"}

    def test_a_table_that_is_removed_and_added_at_once_is_copied_anew(
        self, penstock: CommandLine, store: PostgresStore
    ) -> None:
        """As it says, though nobody noticed: also one whose copy was cancelled."""
        penstock("tables", "cancel", tables=("orders",))
        penstock("tables", "remove", tables=("orders", "items"))
        penstock("tables", "add", tables=("orders",))
        store.load_wishes()
        assert (store.get_wish(ORDERS), store.get_wish(ITEMS)) == ("resync", None)

    def test_without_copies_it_is_said(self, penstock: CommandLine) -> None:
        text = penstock.file.read_text()
        penstock.file.write_text(text.replace("SHOP_URL}'", "SHOP_URL}', copy: false", 1))
        told = penstock("tables", "add", tables=("other.more",))[1]
        assert "rows that exist are not copied (source.copy: false)" in told

    @pytest.mark.parametrize(
        ("table", "said", "remedy"),
        [
            ("other.moree", "The source has no table other.moree;", "Did you mean other.more?"),
            ("zzz.qqq", "The source has no table zzz.qqq;", "upper and lower case count"),
            ("v", "public.v is a view, which Postgres cannot publish;", "rows come from"),
            (
                "bare",
                "cannot be followed: its rows cannot be identified (no primary key);",
                "source.tables.insert_only",
            ),
            ("parts_1", "is a partition of public.parts, with which it comes:", "public.parts"),
        ],
    )
    def test_what_cannot_be_added_changes_nothing(
        self,
        penstock: CommandLine,
        source: psycopg.Connection[tuple[object, ...]],
        table: str,
        said: str,
        remedy: str,
    ) -> None:
        source.execute(
            "CREATE VIEW v AS SELECT 1 AS one; CREATE TABLE bare (id int);"
            "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);"
            "CREATE TABLE parts_1 PARTITION OF parts DEFAULT"
        )
        penstock("tables", "remove", tables=("bare",))
        before = self.rules(penstock)
        code, _, errors = penstock("tables", "add", tables=("other.more", table))
        assert code == 1
        assert said in errors
        assert "nothing was changed." in errors
        assert remedy in errors
        assert self.rules(penstock) == before

    def test_what_cannot_be_removed(
        self, penstock: CommandLine, source: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        source.execute(
            "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);"
            "CREATE TABLE parts_1 PARTITION OF parts DEFAULT"
        )
        code, _, errors = penstock("tables", "remove", tables=("items", "parts_1"))
        assert code == 1
        assert "it cannot be left out alone; nothing was changed." in errors
        code, _, errors = penstock("tables", "remove", tables=("items", "item"))
        assert code == 1
        assert "Did you mean public.items?" in errors
        assert self.rules(penstock) == {}

    def test_a_name_that_is_none(self, penstock: CommandLine) -> None:
        for command in ("add", "remove"):
            code, _, errors = penstock("tables", command, tables=("a.b.c",))
            assert (code, "'a.b.c' is not a table name" in errors) == (2, True)


class TestCopies:
    def test_pause_and_resume(self, penstock: CommandLine, store: PostgresStore) -> None:
        for _ in range(2):  # twice is as good as once
            code, text, _ = penstock("tables", "pause", tables=("orders",))
            assert (code, text.splitlines()[0]) == (0, "public.orders: is paused")
            assert store.load_wishes() == {ORDERS: "paused"}
        assert "public.orders: goes on" in penstock("tables", "resume", tables=("orders",))[1]
        assert store.load_wishes() == {}
        code, _, errors = penstock("tables", "resume", tables=("orders",))
        assert code == 1
        assert "There is nothing to resume: public.orders is data_sync and not paused" in errors

    def test_cancel_and_resync(self, penstock: CommandLine, store: PostgresStore) -> None:
        store.update_table_state(ORDERS, FinishedCopy())
        store.set_wish(ORDERS, "paused")
        assert "is cancelled" in penstock("tables", "cancel", tables=("orders",))[1]
        assert store.load_wishes() == {ORDERS: "cancelled"}
        for command in ("resume", "pause"):
            code, _, errors = penstock("tables", command, tables=("orders",))
            assert code == 1
            assert "was cancelled" in errors
            assert "`penstock tables resync` begins a new one" in errors
        # Of tables in any state.
        tables = ("orders", "items", 'o."My.Table"')
        code, text, _ = penstock("tables", "resync", tables=tables)
        assert code == 0
        assert text.splitlines()[:3] == [
            "public.orders: is to be copied anew",
            "public.items: is to be copied anew",
            'o."My.Table": is to be copied anew',
        ]
        assert store.load_wishes() == dict.fromkeys((ORDERS, ITEMS, ODD), "resync")

    @pytest.mark.parametrize("command", ["pause", "cancel"])
    @pytest.mark.parametrize(
        ("table", "said"),
        [
            ("items", "No copy of public.items is under way: the table is ready"),
            ('o."My.Table"', 'Table o."My.Table" is errored'),
            ("nothing", "has no table public.nothing"),
        ],
    )
    def test_nothing_under_way_changes_nothing(
        self, penstock: CommandLine, store: PostgresStore, command: str, table: str, said: str
    ) -> None:
        code, _, errors = penstock("tables", command, tables=("orders", table))
        assert code == 1
        assert said in errors
        assert "nothing was changed." in errors
        assert "What to do: " in errors
        assert store.load_wishes() == {}

    @pytest.mark.parametrize("wish", [None, "cancelled"])
    def test_resume_is_all_or_none(
        self, penstock: CommandLine, store: PostgresStore, wish: Wish | None
    ) -> None:
        store.set_wishes({ORDERS: "paused", ITEMS: wish})
        assert penstock("tables", "resume", tables=("orders", "items"))[0] == 1
        assert store.load_wishes()[ORDERS] == "paused"

    def test_a_pipeline_that_does_not_copy(
        self, penstock: CommandLine, store: PostgresStore
    ) -> None:
        text = penstock.file.read_text()
        penstock.file.write_text(text.replace("SHOP_URL}'", "SHOP_URL}', copy: false", 1))
        code, _, errors = penstock("tables", "resync", tables=("orders",))
        assert code == 2
        assert "source.copy is false, so tables are not copied" in errors
        assert store.load_wishes() == {}

    def test_before_the_first_run(self, penstock: CommandLine) -> None:
        for command in ("resync", "pause", "resume", "cancel"):
            code, _, errors = penstock("tables", command, tables=("orders",))
            assert code == 1
            assert "has recorded no tables yet" in errors
