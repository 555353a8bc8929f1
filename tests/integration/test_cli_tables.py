"""`penstock tables` and what `penstock destroy` removes, on a store in a real database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from penstock.cli.main import main
from penstock.config import load_pipeline
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    Ready,
    SyncWait,
    TableState,
    TimedRetry,
)
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.store import PostgresStore, pipeline_store
from tests.fix_cli import CommandLine

ORDERS, ITEMS, ODD = 16_385, 16_390, 16_400
ERROR = Errored("value too long for type character varying(3)", "Widen the column.")


@pytest.fixture
def store(penstock: CommandLine) -> Iterator[PostgresStore]:
    """The pipeline's store, with three tables that wait."""
    with pipeline_store(load_pipeline(penstock.file)) as store:
        store.open()
        names = {ORDERS: ("public", "orders"), ITEMS: ("shop", "items"), ODD: ("shop", "My.Table")}
        store.store_table_schemas(
            [TableDefinition(oid, *name, "d", ()) for oid, name in names.items()], 100
        )
        store.update_table_states(dict.fromkeys(names, Init()))
        yield store


def put(store: PostgresStore, table: int, *states: TableState) -> None:
    for state in states:
        store.update_table_state(table, state)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    commands = ("list", "add", "remove", "resync", "pause", "resume", "cancel", "retry", "rollback")
    for command in commands:
        with pytest.raises(SystemExit):
            main(["tables", command, "--help"])
        assert f"Example:\n    penstock tables {command} shop.yaml" in capsys.readouterr().out


class TestList:
    def test_each_table_with_what_it_waits_for(
        self, penstock: CommandLine, store: PostgresStore
    ) -> None:
        put(store, ORDERS, Ready(), ERROR)
        put(store, ODD, DataSync(), FinishedCopy(), SyncWait(), Catchup(0x16B374D848))
        code, text, _ = penstock("tables", "list")
        assert code == 0
        lines = [line.split() for line in text.splitlines()]
        assert lines[0] == ["table", "state", "since"]
        assert lines[1][:2] == ["public.orders", "errored"]
        assert "why: value too long for type character varying(3)" in text
        assert "what to do: Widen the column." in text
        assert "next try: when `penstock tables retry` asks for it" in text
        since = store.get_state_since(ITEMS)
        assert since is not None
        assert lines[-1] == ["shop.items", "init", *f"{since.astimezone(UTC):%F %T} UTC".split()]
        assert lines[-2][:3] == ['shop."My.Table"', "catchup", "16/B374D848"]

    def test_a_try_that_comes_by_itself(self, penstock: CommandLine, store: PostgresStore) -> None:
        when = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
        put(store, ORDERS, Errored("away", retry=TimedRetry(3, when)))
        assert "by itself at 2031-02-03 04:05:06 UTC, attempt 3" in penstock("tables", "list")[1]

    def test_json(self, penstock: CommandLine, store: PostgresStore) -> None:
        put(store, ORDERS, Ready(), ERROR)
        store.set_notes(ORDERS, ["no index a"])
        code, text, _ = penstock("tables", "list", "--json")
        assert code == 0
        first, *_others = json.loads(text)
        since = store.get_state_since(ORDERS)
        assert since is not None
        assert first == {
            "table": "public.orders",
            "oid": ORDERS,
            "state": {
                "phase": "errored",
                "reason": ERROR.reason,
                "solution": ERROR.solution,
                "retry": {"policy": "manual"},
                "delivered": False,
            },
            "since": since.astimezone(UTC).isoformat(),
            "notes": ["no index a"],
            "copy": None,
            "wish": None,
        }

    def test_copies_and_what_is_wanted(self, penstock: CommandLine, store: PostgresStore) -> None:
        put(store, ORDERS, DataSync())
        put(store, ITEMS, DataSync())
        chunks = [
            Chunk(ORDERS, n, ORDERS, "public", "orders", 7, n, n + 1, 3 * 2**20) for n in range(4)
        ]
        store.start_copy(ORDERS, CopyPlan(ORDERS, ("id",), None, tuple(chunks)), 0x1600000042)
        store.copy_snapshot(ORDERS, 0x1600000080)
        store.chunks_done({(ORDERS, 0): (1_000_000, 10), (ORDERS, 3): (234, 10)})
        store.set_wishes({ORDERS: "paused", ODD: "resync", ITEMS: "cancelled"})
        store.set_rules({("shop", "more"): "add", ("shop", "My.Less"): "remove"})
        lines = penstock("tables", "list")[1].splitlines()
        at = next(n for n, line in enumerate(lines) if line.startswith("public.orders"))
        assert [line.strip() for line in lines[at + 1 : at + 3]] == [
            "copied: 2 of 4 chunks, 1,000,234 rows, 6.0 MiB of about 12.0 MiB",
            "wanted: its copy is paused; `penstock tables resume` lets it go on",
        ]
        assert any("cancelled; `penstock tables resync` begins a new one" in line for line in lines)
        assert any("it is to be copied anew" in line for line in lines)
        assert lines[-2:] == [
            "Followed because of `penstock tables add`: shop.more",
            'Left out because of `penstock tables remove`: shop."My.Less"',
        ]
        first, *_others = json.loads(penstock("tables", "list", "--json")[1])
        copy = store.get_copies()[ORDERS]
        assert first["wish"] == "paused"
        assert first["copy"] == {
            "chunks": 4,
            "chunks_done": 2,
            "rows_done": 1_000_234,
            "bytes": 12 * 2**20,
            "bytes_done": 6 * 2**20,
            "first_lsn": "16/42",
            "last_lsn": "16/80",
            "snapshots": 2,
            "started_at": copy.started_at.astimezone(UTC).isoformat(),
        }

    def test_before_the_first_run_it_creates_nothing(
        self, penstock: CommandLine, database: str
    ) -> None:
        code, text, _ = penstock("tables", "list")
        assert code == 0
        assert "has recorded no tables yet" in text
        assert penstock("tables", "list", "--json")[1] == "[]\n"
        code, _, errors = penstock("tables", "retry", tables=("orders",))
        assert code == 1
        assert "has recorded no tables yet" in errors
        with psycopg.connect(database) as conn:
            found = conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'penstock'").fetchall()
        assert found == []


class TestRetry:
    def test_back_to_the_state_before(self, penstock: CommandLine, store: PostgresStore) -> None:
        put(store, ORDERS, Ready(), ERROR)
        put(store, ODD, ERROR)
        # One of them twice, which is not two steps.
        tables = ("orders", 'shop."My.Table"', "public.orders")
        code, text, _ = penstock("tables", "retry", tables=tables)
        assert code == 0
        assert "public.orders: errored -> ready\n" in text
        assert 'shop."My.Table": errored -> init\n' in text
        assert "A running pipeline takes this up by itself" in text
        assert store.get_table_state(ORDERS) == ERROR
        store.load_table_states()
        assert store.get_table_states() == {ORDERS: Ready(), ITEMS: Init(), ODD: Init()}

    @pytest.mark.parametrize(
        ("table", "said"),
        [
            ("shop.items", "Table shop.items is ready, not errored; nothing was changed."),
            ("shop.nothing", "has no table shop.nothing; nothing was changed."),
            ("items", "has no table public.items; nothing was changed."),
        ],
    )
    def test_all_or_none(
        self, penstock: CommandLine, store: PostgresStore, table: str, said: str
    ) -> None:
        put(store, ORDERS, ERROR)
        put(store, ITEMS, Ready())
        code, _, errors = penstock("tables", "retry", tables=("orders", table))
        assert code == 1
        assert said in errors
        assert "What to do: " in errors
        store.load_table_states()
        assert store.get_table_state(ORDERS) == ERROR

    def test_a_name_that_is_none(self, penstock: CommandLine, store: PostgresStore) -> None:
        code, _, errors = penstock("tables", "retry", tables=("a.b.c",))
        assert code == 2
        assert "'a.b.c' is not a table name" in errors


class TestRollback:
    def test_one_step(self, penstock: CommandLine, store: PostgresStore) -> None:
        put(store, ORDERS, Ready(), ERROR)
        code, text, _ = penstock("tables", "rollback", tables=("orders",))
        assert code == 0
        assert "public.orders: errored -> ready\n" in text
        assert "ready -> init\n" in penstock("tables", "rollback", tables=("orders",))[1]
        code, _, errors = penstock("tables", "rollback", tables=("orders",))
        assert code == 1
        assert "no state before init to roll back to" in errors
        assert "table public.orders" in errors
        store.load_table_states()
        assert store.get_table_state(ORDERS) == Init()

    def test_an_unknown_table(self, penstock: CommandLine, store: PostgresStore) -> None:
        code, _, errors = penstock("tables", "rollback", tables=("nothing",))
        assert code == 1
        assert "has no table public.nothing" in errors
        assert 'It has public.orders, shop."My.Table", shop.items.' in errors


class TestDestroy:
    def test_it_takes_the_states_along(self, penstock: CommandLine, store: PostgresStore) -> None:
        code, text, _ = penstock("destroy", "--yes")
        assert code == 0
        assert "Removed table states.\n" in text
        assert not store.exists()
        assert "There was nothing" in penstock("destroy", "--yes")[1]

    def test_also_from_a_store_elsewhere(
        self, penstock: CommandLine, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Another way to the same server, so that both URLs can be told apart.
        elsewhere = database.replace("127.0.0.1", "localhost", 1)
        monkeypatch.setenv("STORE_URL", elsewhere.replace("postgres@", "postgres:hunter2@", 1))
        penstock.file.write_text(penstock.file.read_text() + "store: {url: '${STORE_URL}'}\n")
        config = load_pipeline(penstock.file)
        assert "hunter2" not in repr(config)
        with pipeline_store(config) as store:
            store.open()
            store.update_table_state(ORDERS, Init())
            code, text, _ = penstock("destroy", "--yes")
            assert code == 0
            assert f"Removed table states from {elsewhere}.\n" in text
            assert not store.exists()


def test_a_wrong_store_url_is_named_but_not_shown(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_URL", "postgresql://app:hunter2/x@db/shop")
    penstock.file.write_text(penstock.file.read_text() + "store: {url: '${STORE_URL}'}\n")
    code, _, errors = penstock("tables", "list")
    assert code == 2
    assert "is wrong at store.url: expected a Postgres connection URL" in errors


def test_a_store_that_does_not_answer(
    penstock: CommandLine, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database.replace("postgres@", "postgres:hunter2@", 1).rsplit("/", 1)[0]
    monkeypatch.setenv("STORE_URL", f"{url}/no_such_database")
    penstock.file.write_text(penstock.file.read_text() + "store: {url: '${STORE_URL}'}\n")
    code, _, errors = penstock("tables", "list")
    assert code == 1
    assert "No connection to database 'no_such_database'" in errors
    assert "at the end of store.url" in errors
