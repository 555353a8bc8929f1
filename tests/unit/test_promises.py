"""Topics have no whole transactions: who promises them is refused, unless the file accepts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config import load_deliveries
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.registry import make_destination
from penstock.model.errors import ConfigError
from penstock.pipeline.run.promises import check_promises
from tests.documented import source_example

POSTGRES = {"type": "postgres", "url": "postgresql://localhost/there"}
DISCARD = {"type": "discard"}


def config(folder: Path, destination: dict[str, Any], **source: Any) -> PipelineConfig:
    file = folder / "back.yaml"
    content = {
        "name": "back",
        "store": {"url": "postgresql://localhost/there"},
        "source": source,
        "change_log": {"path": str(folder / "log")},
        "destination": destination,
    }
    file.write_text(yaml.safe_dump(content))
    return load_deliveries(file)[0]


def destination_of(config: PipelineConfig) -> Destination:
    return make_destination(config.destination_type, config.destination_options, config.delivery)


def topics(**options: Any) -> dict[str, Any]:
    """The documented source, without its word about transactions."""
    example = {k: v for k, v in source_example("kafka").items() if k != "split_transactions"}
    return {**example, **options}


MARKED = {
    **{name: value for name, value in topics().items() if name != "schema_topic"},
    "format": "debezium",
    "transaction_topic": "shop.transaction",
}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"format": "penstock", "schema_topic": "s"}, "Penstock writes no markers"),
        ({"schema_topic": "shop.transaction"}, "are two topics"),
        ({"transaction_bytes": "2GiB"}, "1GiB at most"),
    ],
)
def test_only_debezium_marks_transactions(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(tmp_path, POSTGRES, **{**MARKED, **more})


def test_who_promises_whole_transactions_is_refused_by_name(tmp_path: Path) -> None:
    refused = config(tmp_path, POSTGRES, **topics())
    with pytest.raises(ConfigError, match="destination postgres promises") as error:
        check_promises(refused, destination_of(refused))
    assert "source.split_transactions" in error.value.remedy


@pytest.mark.parametrize(
    ("destination", "source"),
    [
        (POSTGRES, topics(split_transactions="accept")),
        (POSTGRES, MARKED),
        (DISCARD, topics()),
        (POSTGRES, {"url": "postgresql://localhost/here"}),
    ],
    ids=["accepted", "marked", "promises nothing", "a database has them"],
)
def test_all_others_are_not(
    tmp_path: Path, destination: dict[str, Any], source: dict[str, Any]
) -> None:
    taken = config(tmp_path, destination, **source)
    check_promises(taken, destination_of(taken))
