"""`destinations:` in the pipeline file: what each of them sees, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from penstock.config import PipelineConfig, load_deliveries, load_pipeline
from penstock.config.destinations import OWN_KEYS
from penstock.config.load import DESTINATIONS, options_model
from penstock.model.errors import ConfigError

SHARED = """\
name: shop
source:
  url: postgresql://penstock@db/shop
batch: {max_age: 2s}
filter: {tables: {exclude: [public.audit]}}
"""
TWO = (
    SHARED
    + """\
destinations:
  warehouse:
    type: postgres
    url: postgresql://penstock@wh/shop
    batch: {max_age: 5s}
  events:
    type: stdout
    filter: {}
    copy: false
    schema_changes: {default: ignore, rename_table: apply}
"""
)

Load = Callable[[str], tuple[PipelineConfig, ...]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str) -> tuple[PipelineConfig, ...]:
        path = tmp_path / "shop.yaml"
        path.write_text(text)
        return load_deliveries(path, environment={})

    return write_and_load


def test_each_sees_its_own_parts_and_what_all_share(load: Load, tmp_path: Path) -> None:
    warehouse, events = load(TWO)
    assert (warehouse.name, warehouse.destination_name) == ("shop", "warehouse")
    assert (warehouse.delivery, events.delivery) == ("shop.warehouse", "shop.events")
    assert warehouse.deliveries == {"warehouse": "shop.warehouse", "events": "shop.events"}
    assert warehouse.destination_options == {"url": "postgresql://penstock@wh/shop"}
    assert (warehouse.batch.max_age, events.batch.max_age) == (5.0, 2.0)
    assert warehouse.filter.tables.exclude == ["public.audit"]
    assert events.filter.tables.exclude == []
    assert warehouse.source.copy_rows is not None
    assert events.source.copy_rows is None
    assert (warehouse.schema_changes.default, events.schema_changes.default) == ("apply", "ignore")
    assert warehouse.change_log == events.change_log
    assert warehouse.change_log.path == str(tmp_path / ".penstock" / "shop" / "log")
    assert pickle.loads(pickle.dumps(events)).delivery == "shop.events"  # noqa: S301
    assert events.model_copy(update={"name": "other"}).delivery == "other.events"


def test_one_destination_keeps_the_names_that_it_had(load: Load) -> None:
    (only,) = load(SHARED + "destination: {type: stdout}\n")
    assert not only.is_one_of_many
    assert (only.name, only.delivery, only.destination_name) == ("shop", "shop", "")
    assert only.deliveries == {"": "shop"}


def test_the_only_destination_becomes_one_of_several_under_the_pipelines_name(load: Load) -> None:
    """What is kept of it is still found."""
    first, second = load(SHARED + "destinations: {shop: {type: stdout}, more: {type: discard}}\n")
    assert (first.delivery, second.delivery) == ("shop", "shop.more")
    assert first.is_one_of_many


def test_one_that_begins_with_the_log_has_no_copy(load: Load) -> None:
    (only,) = load(SHARED + "destinations: {events: {type: stdout, from: log}}\n")
    assert only.replays_log
    assert only.source.copy_rows is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("destinations: {}", "destinations: expected a mapping of names to destinations"),
        ("destinations: [stdout]", "destinations: expected a mapping of names to destinations"),
        (
            "destination: {type: stdout}\ndestinations: {a: {type: stdout}}",
            "destination: a file has destination, for one, or destinations, for several",
        ),
        ("destinations: {A-1: {type: stdout}}", "destinations.A-1: a destination's name"),
        (
            f"destinations: {{{'x' * 36}: {{type: stdout}}}}",
            "have 40 characters; together they may have 39",
        ),
        ("destinations: {a: stdout}", "destinations.a: expected a mapping: type"),
        ("destinations: {a: {}}", "destinations.a: the key type is missing"),
        ("destinations: {a: {type: stdout, colour: red}}", "destinations.a.colour: unknown key"),
        ("destinations: {a: {type: stdout, from: now}}", "a.from: expected source or log"),
        (
            "destinations: {a: {type: stdout, from: log, copy: true}}",
            "destinations.a.copy: with `from: log` the log takes the place of a copy",
        ),
        (
            "destinations: {a: {type: stdout, schema_changes: {track: false}}}",
            "destinations.a.schema_changes.track: the triggers are the pipeline's",
        ),
        (
            "destinations: {a: {type: stdout, schema_changes: {default: later}}}",
            "destinations.a.schema_changes.default: found 'later'",
        ),
        (
            "destinations: {a: {type: stdout, batch: {max_growth: 0}}}",
            "destinations.a.batch.max_growth: found 0",
        ),
        (
            "destinations: {a: {type: stdout, copy: {parallelism: 0}}}",
            "destinations.a.copy.parallelism: found 0",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(load: Load, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(SHARED + text)
    assert said in refused.value.message
    assert refused.value.remedy


def test_what_all_share_is_wrong_once(load: Load) -> None:
    with pytest.raises(ConfigError) as refused:
        load(TWO.replace("name: shop", "name: Shop"))
    assert refused.value.message.count("lower-case letters") == 1


def test_a_command_for_one_asks_which(load: Load, tmp_path: Path) -> None:
    load(TWO)
    file = tmp_path / "shop.yaml"
    with pytest.raises(ConfigError, match="2 destinations") as unclear:
        load_pipeline(file, environment={})
    assert unclear.value.remedy == "Say which: --only warehouse (or events)."
    assert load_pipeline(file, only="events", environment={}).delivery == "shop.events"
    with pytest.raises(ConfigError, match="has no destination lake") as unknown:
        load_pipeline(file, only="lake", environment={})
    assert unknown.value.remedy == "It has warehouse, events."
    file.write_text(SHARED + "destination: {type: stdout}\n")
    assert load_pipeline(file, only="shop", environment={}).delivery == "shop"
    with pytest.raises(ConfigError, match="has one destination, which has no name"):
        load_pipeline(file, only="events", environment={})


@pytest.mark.parametrize("kind", sorted(each.name for each in entry_points(group=DESTINATIONS)))
def test_no_destination_has_an_option_that_stands_beside_its_own(kind: str) -> None:
    fields = options_model(kind).model_fields
    names = {field.alias or name for name, field in fields.items()}
    assert not names & set(OWN_KEYS)
