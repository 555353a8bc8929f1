from __future__ import annotations

import pytest

from bench.settings import INTO_TABLES, PIPELINES, STREAMS, SYSTEMS, WORKLOADS, Settings
from penstock.model.errors import ConfigError

pytestmark = pytest.mark.release


def test_nothing_set_means_everything_at_full_scale() -> None:
    settings = Settings.of({"WORKLOADS": "", "SCALE": "", "ROUNDS": ""})
    assert settings == Settings(WORKLOADS, SYSTEMS, 1.0, None)
    assert [settings.rounds_of(name) for name in ("w1", "w2", "w4", "copy")] == [3, 1, 3, 3]


def test_variables_pick_a_part() -> None:
    settings = Settings.of(
        {"WORKLOADS": "w3, w1", "SYSTEMS": "discard", "SCALE": "0.1", "ROUNDS": "5"}
    )
    assert settings == Settings(("w1", "w3"), ("discard",), 0.1, 5)
    assert settings.rounds_of("w2") == 5


def test_only_systems_that_were_asked_for_start_what_they_need() -> None:
    readers = Settings.of({"SYSTEMS": "pg_recvlogical,capture"})
    assert not readers.needs(*PIPELINES, *INTO_TABLES)
    both = Settings.of({"SYSTEMS": "postgres,native_subscription"})
    assert both.systems_of("w1", PIPELINES) == ("postgres",)
    assert both.systems_of("w1", INTO_TABLES) == ("native_subscription", "postgres")
    pipe = Settings.of({"SYSTEMS": "psql_copy_pipe", "WORKLOADS": "w1,copy"})
    assert pipe.needs(*INTO_TABLES)
    assert not pipe.needs(*INTO_TABLES, of=STREAMS)


def test_each_workload_has_its_own_systems() -> None:
    settings = Settings.of({})
    assert settings.systems_of("copy_small") == ("discard", "postgres")
    assert settings.systems_of("copy") == (
        *("psql_copy_binary_2", "spark_jdbc", "discard", "psql_copy_pipe", "postgres"),
        *("copy_workers_1", "copy_workers_2", "iceberg", "spark_jdbc_iceberg"),
    )
    assert "native_subscription" in settings.systems_of("w1")
    assert settings.systems_of("encode") == ("encode_penstock", "encode_debezium", "encode_bifrost")
    assert not set(settings.systems_of("encode")) & set(settings.systems_of("w1"))
    assert Settings.of({"SYSTEMS": "capture"}).systems_of("copy") == ()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WORKLOADS", "w1,w5"),
        ("SYSTEMS", "debezium"),
        ("SCALE", "big"),
        ("SCALE", "0"),
        ("SCALE", "-1"),
        ("SCALE", "nan"),
        ("ROUNDS", "0"),
        ("ROUNDS", "1.5"),
    ],
)
def test_a_wrong_value_names_the_variable_and_what_it_takes(variable: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.of({variable: value})
    assert f"{variable}={value}" in raised.value.message
    assert f"{variable}=" in raised.value.remedy
