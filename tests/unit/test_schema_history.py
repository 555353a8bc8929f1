"""`penstock schema history`, on a store that needs no server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_state import Init
from penstock.store import MemoryStore, SchemaVersion
from penstock.store.memory import PipelineRecords
from tests.fix_cli import CommandLine

INT, TEXT = (TypeName("pg_catalog", name) for name in ("integer", "text"))
FIRST = TableDefinition(
    oid=10,
    schema="public",
    name="orders",
    replica_identity="d",
    columns=(ColumnDefinition(1, "id", INT, not_null=True), ColumnDefinition(2, "note", TEXT)),
    primary_key=("id",),
)
PRICED = replace(FIRST, columns=(*FIRST.columns, ColumnDefinition(3, "price", INT, default="7")))
MOVED = replace(PRICED, schema="shop", columns=PRICED.columns[:2])
HISTORY = ((0x16_0000_0010, FIRST), (0x16_0000_0200, PRICED), (0x17_0000_0030, MOVED))


class RecordedStore(MemoryStore):
    """It is there once something was recorded."""

    def exists(self) -> bool:
        return bool(self._records)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> dict[str, PipelineRecords]:
    """What the store of the commands holds."""
    records: dict[str, PipelineRecords] = {}
    monkeypatch.setattr(
        "penstock.store.pipeline_store", lambda config: RecordedStore(config.name, records)
    )
    return records


@pytest.fixture
def store(records: dict[str, PipelineRecords]) -> MemoryStore:
    """A pipeline that follows one table."""
    store = MemoryStore("shop", records)
    store.update_table_state(10, Init())
    return store


@pytest.fixture
def penstock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsource: {url: 'postgresql://app@db/shop'}\ndestination: {type: discard}\n"
    )
    return CommandLine(file, capsys)


def keep(store: MemoryStore, *history: tuple[int, TableDefinition]) -> None:
    for lsn, definition in history:
        store.store_table_schema(definition, lsn)


def test_every_definition_is_shown_with_what_was_different(
    store: MemoryStore, penstock: CommandLine
) -> None:
    keep(store, *HISTORY)
    code, out, _ = penstock("schema", "history", tables=("shop.orders",))
    assert code == 0
    assert out.splitlines() == [
        "version 1, from 16/10 on",
        "  public.orders (id, note)",
        "version 2, from 16/200 on",
        "  column price integer added (default 7)",
        "version 3, from 17/30 on",
        "  column price dropped",
        "  table public.orders renamed to shop.orders",
    ]


def test_a_table_that_was_never_changed_has_one_version(
    store: MemoryStore, penstock: CommandLine
) -> None:
    keep(store, (0x10, FIRST), (0x20, FIRST))
    code, out, _ = penstock("schema", "history", tables=("orders",))
    assert (code, out) == (0, "version 1, from 0/10 on\n  public.orders (id, note)\n")


def test_as_json_it_holds_whole_definitions(store: MemoryStore, penstock: CommandLine) -> None:
    keep(store, *HISTORY)
    code, out, _ = penstock("schema", "history", "--json", tables=("shop.orders",))
    assert code == 0
    entries: list[dict[str, Any]] = json.loads(out)
    assert [entry["lsn"] for entry in entries] == ["16/10", "16/200", "17/30"]
    shown = [TableDefinition.from_json(entry["definition"]) for entry in entries]
    assert shown == [definition for _, definition in HISTORY]
    assert entries[1]["changes"] == ["column price integer added (default 7)"]


def test_other_tables_of_the_pipeline_are_not_shown(
    store: MemoryStore, penstock: CommandLine
) -> None:
    keep(store, (0x10, replace(FIRST, oid=11, name="others")), (0x20, FIRST))
    _, out, _ = penstock("schema", "history", tables=("orders",))
    assert out.splitlines()[0] == "version 1, from 0/20 on"
    assert "others" not in out


def test_a_table_that_is_not_there_is_a_message_with_those_that_are(
    store: MemoryStore, penstock: CommandLine
) -> None:
    keep(store, *HISTORY)
    # It has another name now.
    code, out, error = penstock("schema", "history", tables=("public.orders",))
    assert (code, out) == (1, "")
    assert "Pipeline shop has no table public.orders" in error
    assert "What to do: It has shop.orders." in error


def test_a_name_that_is_none_is_refused(store: MemoryStore, penstock: CommandLine) -> None:
    keep(store, *HISTORY)
    code, _, error = penstock("schema", "history", tables=("a.b.c",))
    assert code == 2
    assert "What to do: Write schema.table" in error


@pytest.mark.usefixtures("records")
def test_a_pipeline_that_never_ran_has_no_history(penstock: CommandLine) -> None:
    code, _, error = penstock("schema", "history", tables=("orders",))
    assert code == 1
    assert "Pipeline shop has recorded no tables yet." in error


def test_the_command_teaches_by_an_example(penstock: CommandLine) -> None:
    code, out, _ = penstock("schema", "history", "--help")
    assert code == 0
    assert "\n    penstock schema history shop.yaml public.orders" in out


DEFINITIONS = (FIRST, PRICED, MOVED)
stored = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(DEFINITIONS)))


@given(stored)
def test_versions_are_kept_in_order_and_only_where_something_changed(
    history: list[tuple[int, TableDefinition]],
) -> None:
    """In whatever order they come: a batch that is brought again stores what it stored before."""
    records: dict[str, PipelineRecords] = {}
    store = MemoryStore("shop", records)
    assert store.get_schema_versions(10) == ()
    for lsn, definition in history:
        store.store_table_schema(definition, lsn)
        versions = store.get_schema_versions(10)
        assert store.get_table_schema(10, lsn) == definition
        assert store.get_table_schema(10) == versions[-1].definition
    lsns = [version.lsn for version in store.get_schema_versions(10)]
    assert lsns == sorted(set(lsns))
    again = MemoryStore("shop", records)
    again.load_table_schemas()
    assert again.get_schema_versions(10) == store.get_schema_versions(10)


def test_what_is_stored_at_the_same_lsn_takes_the_place_of_the_first() -> None:
    store = MemoryStore("shop")
    keep(store, (0x10, FIRST), (0x20, PRICED), (0x20, MOVED), (0x30, MOVED))
    assert store.get_schema_versions(10) == (
        SchemaVersion(0x10, FIRST),
        SchemaVersion(0x20, MOVED),
    )
    # As it was before: then nothing was changed there.
    keep(store, (0x20, FIRST))
    assert store.get_schema_versions(10) == (SchemaVersion(0x10, FIRST),)
