"""Identity and version by a user's own rules, from a package that is really installed."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from penstock.decode.changes import TableChanges
from penstock.destination.encode.messages import EventFormat
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.options import FormatOptions, LaneOptions
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.families.queue.versions import VERSION
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.routes import Routes
from penstock.destination.kinesis.options import KinesisOptions
from penstock.model.errors import ConfigError, DestinationError
from penstock.model.lsn import Frontier
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_rows import TableRows
from penstock.testing.change_builder import ChangeBuilder, Column, table
from tests.handed_over import handed_over

ITEMS = table(
    "items", *(Column(name, "int8") for name in ("id", "tenant", "row_version")), identity="f"
)
DEFINITION = TableDefinition(
    ITEMS.oid,
    "public",
    "items",
    "f",
    tuple(
        ColumnDefinition(n, column.name, TypeName("pg_catalog", "bigint"))
        for n, column in enumerate(ITEMS.columns, start=1)
    ),
    primary_key=("id",),
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/identity.md shows, as pip would install it."""
    page = (Path(__file__).parents[2] / "docs" / "identity.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    entries = page.split("```toml\n")[1].split("```")[0].replace('"', "")
    wrong = "\n\ndef wrong(*given):\n    return ['nowhere']\n"
    (tmp_path / "shop_rules.py").write_text(code + wrong)
    info = tmp_path / "shop_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-rules\nVersion: 1.0\n")
    groups = entries.replace("project.entry-points.", "").split("\n\n")
    wrong_too = [f"{group.strip()}\nwrong = shop_rules:wrong" for group in groups]
    (info / "entry_points.txt").write_text("\n\n".join(wrong_too))
    monkeypatch.syspath_prepend(str(tmp_path))


def made(**options: Any) -> EventFormat:
    formats = Formats(FormatOptions.model_validate(options), "shop")
    formats.know([DEFINITION])
    copy: EventFormat = pickle.loads(pickle.dumps(formats.format()))  # noqa: S301
    return copy


def some_changes() -> TableChanges:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "7", "100")
        builder.update(ITEMS, "1", "7", None, full=["1", "7", "100"])
        builder.update(ITEMS, "2", "7", "102", full=["1", "7", None])
        builder.delete(ITEMS, full=["2", "7", "102"])
    (changes,) = builder.cut().tables
    return changes


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["penstock", "debezium", "bifrost"])
def test_the_key_is_what_the_finder_says(name: str) -> None:
    keys = made(format=name, identity="by_tenant").changes(some_changes()).key.to_pylist()
    assert json.loads(keys[0]) == {"tenant": 7, "id": 1}
    assert list(json.loads(keys[-1])) == ["tenant", "id"]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["penstock", "debezium", "bifrost"])
def test_versions_are_headers_of_all_messages_of_a_change(name: str) -> None:
    found = made(format=name, version="by_row_version").changes(some_changes())
    versions = dict(found.headers)[VERSION].to_pylist()
    expected = ["100", None, "102", "102"]
    assert versions == [expected[row] for row in found.row]


@pytest.mark.usefixtures("package")
def test_versions_stand_in_penstocks_own_events() -> None:
    encoder = made(version="by_row_version", penstock={"column_ids": True})
    values = [json.loads(text) for text in encoder.changes(some_changes()).value.to_pylist()]
    assert [value["version"] for value in values] == ["100", None, "102", "102", "102"]
    assert all(list(value)[-3:] == ["table_id", "columns", "version"] for value in values)
    rows = TableRows(
        some_changes().table,
        (pa.array(["1"]), pa.array(["7"]), pa.array(["5"])),
        1,
        Frontier(0x50, 0x58),
    )
    (value,) = encoder.copied(rows).value.to_pylist()
    assert json.loads(value)["version"] == "5"


@pytest.mark.usefixtures("package")
def test_kafka_gets_versions_where_there_are_some() -> None:
    options = KafkaOptions.model_validate({"brokers": "x", "version": "by_row_version"})
    encoder = Encoder(
        made(version="by_row_version"), LaneOptions(), Oversize("x", 10**6, "error", "")
    )
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "7", "100")
        builder.insert(ITEMS, "2", "7", None)
        builder.truncate(ITEMS)
    sent = handed_over(Routes(options, "shop", {}).outgoing(encoder.events(builder.cut())))
    assert [message.headers.get(VERSION) for message in sent] == [b"100", None, None]


@pytest.mark.usefixtures("package")
def test_a_stream_has_no_place_for_versions_beside_events() -> None:
    KinesisOptions.model_validate({"version": "by_row_version"})
    with pytest.raises(ValidationError, match="debezium has no place for a version"):
        KinesisOptions.model_validate({"version": "by_row_version", "format": "debezium"})


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("option", ["identity", "version"])
def test_a_name_that_no_package_brings(option: str) -> None:
    with pytest.raises(
        ConfigError, match=f"destination.{option}: there is no {option} finder 'x'"
    ) as error:
        FormatOptions.model_validate({option: "x"})
    assert "use one of: by_" in error.value.remedy


def test_where_no_package_brings_any() -> None:
    with pytest.raises(ConfigError) as error:
        FormatOptions.model_validate({"identity": "x"})
    assert "penstock.identity_finders" in error.value.remedy


@pytest.mark.usefixtures("package")
def test_a_finder_that_names_what_is_not_there() -> None:
    with pytest.raises(DestinationError, match="names column 'nowhere' for table"):
        made(identity="wrong")


@pytest.mark.usefixtures("package")
def test_a_finder_that_gives_too_few_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    import shop_rules  # type: ignore[import-not-found]

    monkeypatch.setattr(shop_rules, "by_row_version", lambda _table, rows: rows.column(0)[:1])
    encoder = Formats(FormatOptions.model_validate({"version": "by_row_version"}), "shop").format()
    with pytest.raises(DestinationError, match="gave 1 versions for 4 events"):
        encoder.changes(some_changes())


@pytest.mark.usefixtures("package")
def test_a_finder_may_leave_it_to_penstock() -> None:
    formats = Formats(FormatOptions.model_validate({"identity": "by_tenant"}), "shop")
    without = TableDefinition(
        ITEMS.oid, "public", "items", "f", DEFINITION.columns[:1], primary_key=("id",)
    )
    formats.know([without])
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "7", "100")
    (changes,) = builder.cut().tables
    assert formats.format().changes(changes).key.to_pylist() == ['{"id":1}']


def test_column_ids_stay_across_a_rename() -> None:
    formats = Formats(FormatOptions.model_validate({"penstock": {"column_ids": True}}), "shop")
    formats.know([DEFINITION])
    (value,) = events(formats, ITEMS)
    assert value["table_id"] == ITEMS.oid
    assert value["columns"] == {"id": 1, "tenant": 2, "row_version": 3}
    names = ("id", "owner", "row_version")
    renamed = table("items", *(Column(name, "int8") for name in names), identity="f")
    # A name that the definition does not have gets no number, rather than a wrong one.
    (value,) = events(formats, renamed)
    assert value["columns"] == {"id": 1, "row_version": 3}
    columns = tuple(
        ColumnDefinition(column.attnum, name, column.type)
        for column, name in zip(DEFINITION.columns, names, strict=True)
    )
    formats.know([TableDefinition(ITEMS.oid, "public", "items", "f", columns)])
    (value,) = events(formats, renamed)
    assert value["columns"] == {"id": 1, "owner": 2, "row_version": 3}


@pytest.mark.parametrize("name", ["penstock", "debezium", "bifrost", "cloudevents"])
def test_a_format_knows_tables_as_they_were_when_it_was_made(name: str) -> None:
    """A writer that has it is pickled by one thread while another one hears of more tables."""
    formats = Formats(FormatOptions.model_validate({"format": name}), "shop")
    keyed = replace(DEFINITION, primary_key=("id",))
    formats.know([keyed])
    earlier = formats.format()
    formats.know([replace(keyed, oid=99), replace(keyed, primary_key=("tenant",))])
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "7", "100")
    (changes,) = builder.cut().tables
    (key,) = earlier.changes(changes).key.to_pylist()
    assert ("id" in key, "tenant" in key) == (True, False)


def events(formats: Formats, of: Any) -> list[dict[str, Any]]:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(of, "1", "7", "100")
    (changes,) = builder.cut().tables
    return [json.loads(text) for text in formats.format().changes(changes).value.to_pylist()]
