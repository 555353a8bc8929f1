"""What driver and worker must agree on: both read a pipeline file, perhaps two copies of it.

Neither tells the other its options, of which some are secrets. They compare marks of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from penstock.config.load import options_model
from penstock.config.models import PipelineConfig
from penstock.config.secret_names import SECRET_NAME
from penstock.model.errors import ConfigError
from penstock.model.table_definition import TableDefinition

Terms = Mapping[str, str]

_WORDS = {
    "version": "Penstock's version",
    "source": "source.url leads to another server or database, or to a standby",
    "destination": "destination: type or options",
    "filter": "filter",
}


def terms_of(config: PipelineConfig, place: str) -> Terms:
    """``place`` is what the copy source says of itself. Secrets are left out: a worker with a wrong
    one is refused by who asks for it.
    """
    options = options_model(config.destination_type).model_validate(config.destination_options)
    destination = {"type": config.destination_type, **options.model_dump(mode="json")}
    return {
        "version": version("penstock"),
        "source": place,
        "destination": _mark(_without_secrets(destination)),
        "filter": _mark(config.filter.model_dump(mode="json")),
    }


def expect_terms(mine: Terms, drivers: Terms) -> None:
    """Raises ConfigError where this process would copy other rows, or to another place."""
    others = [words for name, words in _WORDS.items() if mine.get(name) != drivers.get(name)]
    if others:
        raise ConfigError(
            "this worker is not what the driver of the pipeline is: these differ: "
            + "; ".join(others),
            remedy="give `penstock copy` the pipeline file, the environment and the version of "
            "Penstock that `penstock run` has",
        )


def definition_mark(table: TableDefinition) -> str:
    """Another one when the table is defined in another way, or its rules or key are others."""
    return _mark(table.to_json())


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_secrets(item)
            for key, item in value.items()
            if not (isinstance(item, str) and SECRET_NAME.search(str(key)))
        }
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _mark(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
