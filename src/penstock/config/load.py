"""From a file on disk to a PipelineConfig, or one error that lists everything wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from penstock.config import entry_point
from penstock.config.environment import KeyPath, substitute
from penstock.config.models import PipelineConfig
from penstock.config.problems import describe, format_problems
from penstock.config.yaml_document import read_yaml
from penstock.model.errors import ConfigError

DestinationValidator = Callable[[str, dict[str, Any]], object]

DESTINATIONS = "penstock.destinations"
"""The entry-point group in which packages name their destinations."""

DESTINATION_OPTIONS = "penstock.destination_options"
"""The group in which they may name what checks their options, where that loads faster."""

_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REMEDY = "docs/pipeline_file.md describes every key."


def load_pipeline(
    path: Path,
    *,
    environment: Mapping[str, str] = os.environ,
    validate_destination: DestinationValidator | None = None,
) -> PipelineConfig:
    """Read and validate a pipeline file.

    Raises ConfigError with every problem found: key path, what was found (unless it may be a
    secret) and what was expected. A relative ``change_log.path`` is resolved against the folder of
    the file. The destination's options are checked by ``validate_destination``, by default the
    registry of destinations.
    """
    document = read_yaml(_read_text(path), str(path))
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path} is {'empty' if document is None else 'not a mapping of keys to values'}.",
            remedy="Start it with `name:`, `source:` and `destination:`. " + _REMEDY,
        )
    substitution = substitute(document, environment)
    problems: list[tuple[KeyPath, str]] = list(substitution.problems)
    if problems:
        # Values that stand for nothing would only add misleading errors of their own.
        raise ConfigError(format_problems(str(path), problems), remedy=_REMEDY)
    touched = substitution.touched
    config = None
    try:
        config = PipelineConfig.model_validate(substitution.value)
    except ValidationError as error:
        problems += describe(error, model=PipelineConfig, touched=touched)
    if config is not None:
        try:
            (validate_destination or _registered)(
                config.destination_type, config.destination_options
            )
        except ValidationError as error:
            problems += describe(error, model=None, touched=touched, prefix=("destination",))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", remedy=error.remedy) from None
    if config is None or problems:
        raise ConfigError(format_problems(str(path), problems), remedy=_REMEDY)
    return _resolve_log_path(config, path.resolve().parent)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"There is no pipeline file at {path}.",
            remedy="Check the path, or write the file: docs/pipeline_file.md has an example.",
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a folder, not a pipeline file.",
            remedy="Name the YAML file inside it.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text (byte {error.start}).", remedy="Save it as UTF-8."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.", remedy="Check its permissions."
        ) from None


def options_model(kind: str) -> type[BaseModel]:
    """What checks the options of a destination. Raises ConfigError where there is no such one.

    The destination itself is loaded only where its package does not name its options apart.
    """
    model: type[BaseModel] | None = entry_point.find(DESTINATION_OPTIONS, kind)
    if model is None:
        destination = entry_point.load(DESTINATIONS, kind, "destination.type", "destination")
        model = destination.options_model
    return model


def _registered(kind: str, options: dict[str, Any]) -> None:
    options_model(kind).model_validate(options)


def _resolve_log_path(config: PipelineConfig, folder: Path) -> PipelineConfig:
    path = config.change_log.path
    if not _HAS_SCHEME.match(path):
        path = str(folder / Path(path).expanduser())
    change_log = config.change_log.model_copy(update={"path": path})
    return config.model_copy(update={"change_log": change_log})
