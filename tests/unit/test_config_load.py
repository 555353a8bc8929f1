"""The pipeline file: what it may say, and what a person is told when it says something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from penstock.config import PipelineConfig, load_pipeline
from penstock.config.models import CopyConfig
from penstock.model.errors import ConfigError

SMALLEST = """\
name: shop
source:
  url: postgresql://penstock@db/shop
destination:
  type: stdout
"""

Load = Callable[..., PipelineConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(
        text: str,
        environment: dict[str, str] | None = None,
        validate: Callable[[str, dict[str, Any]], object] = lambda kind, options: None,
    ) -> PipelineConfig:
        path = tmp_path / "shop.yaml"
        path.write_text(text, encoding="utf-8")
        return load_pipeline(path, environment=environment or {}, validate_destination=validate)

    return write_and_load


def refusal(load: Load, text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, environment)
    assert caught.value.remedy
    return caught.value.message


def test_the_smallest_file_has_every_default(load: Load, tmp_path: Path) -> None:
    config = load(SMALLEST)
    assert config.name == "shop"
    assert config.source.tables.include == ["public.*"]
    assert config.source.tables.exclude == []
    assert config.source.tables.insert_only == []
    assert config.source.tables.on_remove == "keep"
    assert config.source.tables.reconcile == pytest.approx(10)
    assert config.source.copy_rows == CopyConfig(
        parallelism=None,
        chunk_bytes=64 * 2**20,
        max_snapshot_age=86400.0,
        max_wal=None,
        on_max_wal="pause",
        where={},
        existing_rows="refuse",
    )
    assert config.change_log.path == str(tmp_path / ".penstock" / "shop" / "log")
    assert config.change_log.confirm == "destination"
    assert config.change_log.segment_bytes == 16 * 2**20
    assert config.change_log.segment_age == pytest.approx(0.1)
    assert config.change_log.max_bytes == 20 * 2**30
    assert config.change_log.grace == pytest.approx(60)
    assert config.batch.max_bytes == 128 * 2**20
    assert config.batch.max_age is None
    assert config.batch.max_growth == 4
    assert config.batch.buffer_bytes == 32 * 2**20
    assert config.destination_type == "stdout"
    assert config.destination_options == {}
    assert config.spark.master == "local[*, 4]"
    assert config.spark.conf == {}


def test_every_key(load: Load, tmp_path: Path) -> None:
    config = load(
        """\
name: shop_2
source:
  url: ${SHOP_URL}
  tables:
    include: ["shop.*", orders]
    exclude: ["shop.audit_?"]
    insert_only: ["shop.log_*"]
    on_remove: drop
    reconcile: 500ms
  copy:
    parallelism: 8
    chunk_bytes: 16MiB
    max_snapshot_age: 2h
    max_wal: 50GB
    on_max_wal: restart
    where: {orders: "placed > '2025-01-01'", '"My Shop"."a.b"': id > 7}
    existing_rows: truncate
change_log:
  path: here/log
  confirm: log
  segment_bytes: 64KiB
  segment_age: 2s
  max_bytes: 1GB
  grace: 0
batch: {max_bytes: 1MiB, max_age: 500ms, max_growth: 1, buffer_bytes: 2MiB}
destination: {type: files, path: out, format: parquet}
spark: {master: "spark://host:7077", conf: {spark.ui.enabled: false, spark.task.cpus: 2}}
""",
        {"SHOP_URL": "postgresql://penstock:pw@db/shop"},
    )
    assert config.source.url.reveal() == "postgresql://penstock:pw@db/shop"
    assert config.source.tables.patterns.matches("shop", "audit_10")
    assert not config.source.tables.patterns.matches("shop", "audit_1")
    assert (config.source.tables.on_remove, config.source.tables.reconcile) == ("drop", 0.5)
    copy = config.source.copy_rows
    assert copy is not None
    assert (copy.parallelism, copy.chunk_bytes, copy.max_snapshot_age) == (8, 2**24, 7200.0)
    assert (copy.max_wal, copy.on_max_wal, copy.existing_rows) == (
        50 * 10**9,
        "restart",
        "truncate",
    )
    assert copy.conditions == {"public.orders": "placed > '2025-01-01'", "My Shop.a.b": "id > 7"}
    assert config.change_log.path == str(tmp_path / "here" / "log")
    assert config.change_log.segment_bytes == 65536
    assert config.change_log.grace == 0
    assert config.batch.max_age == pytest.approx(0.5)
    assert (config.batch.max_growth, config.batch.buffer_bytes) == (1, 2 * 2**20)
    assert [pattern.text for pattern in config.source.tables.patterns.insert_only] == ["shop.log_*"]
    assert config.destination_options == {"path": "out", "format": "parquet"}
    assert config.spark.conf == {"spark.ui.enabled": "false", "spark.task.cpus": "2"}


def test_the_documented_file_is_right_and_names_every_key(load: Load) -> None:
    text = (Path(__file__).parents[2] / "docs" / "pipeline_file.md").read_text(encoding="utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    config = load(example, {"SHOP_URL": "postgresql://penstock:pw@db/shop"})
    assert config.source.copy_rows is not None
    assert config.metrics.report is not None
    assert config.metrics.statsd is not None
    for section in (
        config.source,
        config.source.tables,
        config.source.copy_rows,
        config.change_log,
        config.batch,
        config.metrics,
        config.metrics.report,
        config.metrics.statsd,
    ):
        for key, field in type(section).model_fields.items():
            name = field.alias or key
            assert key in section.model_fields_set, f"the example leaves out {name}"
            if name != "tables":
                assert f".{name}` |" in text, f"the table of keys leaves out {name}"


@pytest.mark.parametrize("path", ["/var/lib/penstock/log", "s3://bucket/prefix"])
def test_an_absolute_log_path_stays(load: Load, path: str) -> None:
    assert load(SMALLEST + f"change_log: {{path: '{path}'}}\n").change_log.path == path


def test_models_are_frozen(load: Load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(SMALLEST).name = "other"


def test_all_problems_are_listed_at_once_with_path_finding_and_expectation(load: Load) -> None:
    message = refusal(
        load,
        """\
name: My-Shop
source:
  tabels: {}
  tables: {include: [a.b.c]}
change_log: {segment_bytes: 64MX, confirm: never, segment_age: 0}
bacth: {}
destination: {path: x}
spark: 3
""",
    )
    lines = [line.strip() for line in message.splitlines()]
    assert lines[0].endswith("shop.yaml has 10 problems:")

    def line(path: str) -> str:
        (found,) = (line for line in lines if line.startswith(path + ":"))
        return found

    assert "found 'My-Shop'; expected 1 to 40 lower-case letters" in line("name")
    assert "missing" in line("source.url")
    assert 'unknown key; did you mean "tables"?' in line("source.tabels")
    assert "found 'a.b.c'; expected a table pattern" in line("source.tables.include[0]")
    assert "more than two parts" in line("source.tables.include[0]")
    assert "found '64MX'; expected a size such as 64MiB" in line("change_log.segment_bytes")
    assert "found 'never'; expected 'destination' or 'log'" in line("change_log.confirm")
    assert "expected greater than 0" in line("change_log.segment_age")
    assert 'did you mean "batch"?' in line("bacth")
    assert "type is missing" in line("destination")
    assert "found 3; expected a mapping" in line("spark")


def test_an_unknown_key_like_no_other_gets_the_list(load: Load) -> None:
    message = refusal(load, SMALLEST + "batch: {zzz: 1}\n")
    assert "batch.zzz: unknown key; known keys: buffer_bytes, max_age, max_bytes, max" in message


class TestCopy:
    @staticmethod
    def file(copy: str) -> str:
        return SMALLEST.replace("/shop\n", f"/shop\n  copy: {copy}\n", 1)

    @pytest.mark.parametrize(("text", "expected"), [("true", CopyConfig()), ("false", None)])
    def test_yes_and_no(self, load: Load, text: str, expected: CopyConfig | None) -> None:
        assert load(self.file(text)).source.copy_rows == expected

    @pytest.mark.parametrize("text", ["", "no_thanks", "3", "[true]"])
    def test_nothing_else(self, load: Load, text: str) -> None:
        message = refusal(load, self.file(text))
        assert "expected true, false or a mapping of keys to values" in message

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("{chunk_byte: 1MiB}", 'source.copy.chunk_byte: unknown key; did you mean "chunk_byte'),
            ("{parallelism: 0}", "source.copy.parallelism: found 0; expected greater than or"),
            ("{on_max_wal: stop}", "found 'stop'; expected 'pause' or 'restart'"),
            ("{where: {'shop.*': id > 1}}", "source.copy.where: shop.* has a wildcard"),
            ("{where: {a.b.c: id > 1}}", "source.copy.where: a.b.c is not a table such as"),
            ("{where: {orders: a, public.orders: b}}", "orders and public.orders are the same"),
            ("{where: {orders: ' '}}", "the condition of orders is empty"),
        ],
    )
    def test_problems_are_named(self, load: Load, text: str, expected: str) -> None:
        assert expected in refusal(load, self.file(text))


def test_a_log_smaller_than_a_segment_is_refused(load: Load) -> None:
    message = refusal(load, SMALLEST + "change_log: {max_bytes: 1MiB}\n")
    assert "max_bytes (1048576) is smaller than one segment (16777216)" in message


def test_a_segment_whose_bytes_cannot_be_counted_is_refused(load: Load) -> None:
    message = refusal(load, SMALLEST + "change_log: {segment_bytes: 4GiB}\n")
    assert "change_log.segment_bytes: found '4GiB'; expected less than or equal to" in message


class TestEnvironment:
    def test_inside_text_and_escaped(self, load: Load) -> None:
        text = SMALLEST + "  path: a/${DAY}/$$HOME/$x\n"
        config = load(text, {"DAY": "${NOT_AGAIN}"})
        assert config.destination_options == {"path": "a/${NOT_AGAIN}/$HOME/$x"}

    def test_every_unset_variable_is_named_with_its_key(self, load: Load) -> None:
        text = SMALLEST.replace("postgresql://penstock@db/shop", "${SHOP_URL}")
        message = refusal(load, text + "  tags: [a, '${TAG}']\n")
        assert "source.url: the environment variable SHOP_URL is not set" in message
        assert "destination.tags[1]: the environment variable TAG is not set" in message

    @pytest.mark.parametrize("reference", ["${", "${A", "${A B}", "${}"])
    def test_malformed_references(self, load: Load, reference: str) -> None:
        message = refusal(load, SMALLEST + f"  path: '{reference}'\n", A="1")
        assert "destination.path: ${ does not begin a variable" in message

    def test_keys_are_left_alone(self, load: Load) -> None:
        config = load(SMALLEST + "  ${A}: 1\n", {"A": "b"})
        assert config.destination_options == {"${A}": 1}


class TestSecrets:
    def test_not_in_repr(self, load: Load) -> None:
        text = SMALLEST.replace("penstock@", "penstock:hunter2@") + "  token: hunter2\n"
        config = load(text)
        assert "hunter2" not in repr(config)
        assert "hunter2" not in str(config)

    def test_a_bad_url_is_not_repeated(self, load: Load) -> None:
        text = SMALLEST.replace("penstock@db/shop", "penstock:hunter2@db/shop?x=y")
        message = refusal(load, text)
        assert "source.url: expected a Postgres connection URL" in message
        assert "hunter2" not in message

    def test_a_value_from_the_environment_is_not_repeated(self, load: Load) -> None:
        message = refusal(load, SMALLEST + "batch: {max_bytes: '${SIZE}'}\n", SIZE="hunter2")
        assert "batch.max_bytes: expected a size" in message
        assert "hunter2" not in message

    def test_the_destinations_errors_hide_values_that_may_be_secret(self, load: Load) -> None:
        text = SMALLEST + "  password: hunter2\n  place: ftp://me:hunter2@host\n"
        with pytest.raises(ConfigError) as caught:
            load(text, validate=lambda kind, options: Options.model_validate(options))
        assert "destination.password: expected a valid integer" in caught.value.message
        assert "destination.place: expected a valid integer" in caught.value.message
        assert "hunter2" not in caught.value.message


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    password: int = 0
    place: int = 0
    rows: int = 0


class TestDestination:
    def test_options_are_checked_by_the_destination(self, load: Load) -> None:
        seen: list[tuple[str, dict[str, Any]]] = []
        load(
            SMALLEST + "  path: out\n",
            validate=lambda kind, options: seen.append((kind, options)),
        )
        assert seen == [("stdout", {"path": "out"})]

    def test_its_problems_stand_under_destination(self, load: Load) -> None:
        with pytest.raises(ConfigError) as caught:
            load(
                SMALLEST + "  rows: many\n  rwos: 1\n",
                validate=lambda kind, options: Options.model_validate(options),
            )
        assert "destination.rows: found 'many'; expected a valid integer" in caught.value.message
        assert "destination.rwos: unknown key" in caught.value.message

    def test_an_unknown_type_keeps_the_registrys_words(self, load: Load) -> None:
        def validate(kind: str, options: dict[str, Any]) -> None:
            raise ConfigError(f"no destination {kind}", remedy="install it")

        with pytest.raises(ConfigError, match=r"shop\.yaml: no destination stdout") as caught:
            load(SMALLEST, validate=validate)
        assert caught.value.remedy == "install it"


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "where", "what"),
        [
            (
                "name: shop\nname: shop2\n",
                "line 2, column 1",
                'the key "name" stands here a second',
            ),
            ("source:\n  url: a\n  url: b\n", "line 3, column 3", 'the key "url"'),
            ("name: [a\nsource: b\n", "line 2, column 7", "expected"),
            ("name: a\n\tb: c\n", "line 2, column 1", "cannot start any token"),
            ("a: &x {b: *x}\n", "line 1, column 11", "inside the value"),
            ("1: a\n", "line 1, column 1", "not a text"),
            ("a: *b\n", "line 1, column 4", "undefined alias"),
            ("a: !!python/object:os.system {}\n", "line 1, column 4", "constructor"),
        ],
    )
    def test_syntax_errors_name_line_and_column(
        self, load: Load, text: str, where: str, what: str
    ) -> None:
        message = refusal(load, text)
        assert f"shop.yaml, {where}: " in message
        assert what in message

    def test_merged_mappings_are_no_duplicates(self, load: Load) -> None:
        text = SMALLEST + "  a: &a {k: 1, l: 1}\n  b: &b {<<: *a, k: 2}\n  c: {<<: *b, k: 3}\n"
        assert load(text).destination_options["c"] == {"k": 3, "l": 1}

    @pytest.mark.parametrize(("text", "what"), [("", "is empty"), ("- a\n", "not a mapping")])
    def test_no_mapping(self, load: Load, text: str, what: str) -> None:
        assert what in refusal(load, text)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="There is no pipeline file at"):
            load_pipeline(tmp_path / "no.yaml")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="is a folder"):
            load_pipeline(tmp_path)

    def test_bytes_that_are_not_text(self, tmp_path: Path) -> None:
        path = tmp_path / "shop.yaml"
        path.write_bytes(b"name: \xff\n")
        with pytest.raises(ConfigError, match="not UTF-8"):
            load_pipeline(path)
