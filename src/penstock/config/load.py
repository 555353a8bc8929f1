"""From a file on disk to a PipelineConfig, or one error that lists everything wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from penstock.config import entry_point
from penstock.config.destinations import DESTINATIONS_KEY, DestinationView, split
from penstock.config.environment import KeyPath, substitute
from penstock.config.kafka_source import pipeline_model
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
    only: str | None = None,
    environment: Mapping[str, str] = os.environ,
    validate_destination: DestinationValidator | None = None,
) -> PipelineConfig:
    """Read and validate a pipeline file, for one destination: ``only``, where it has several.

    Raises ConfigError as ``load_deliveries`` does, and where it is not clear which destination is
    meant.
    """
    found = load_deliveries(
        path, environment=environment, validate_destination=validate_destination
    )
    return choose(found, only, str(path))


def choose(
    found: Sequence[PipelineConfig], only: str | None, file: str, option: str = "--only"
) -> PipelineConfig:
    """The destination called ``only``; the one that there is, if nobody says which. ``option`` is
    how it is said which one is meant.
    """
    names = [config.destination_name for config in found]
    if only is None:
        if len(found) == 1:
            return found[0]
        raise ConfigError(
            f"{file} has {len(found)} destinations, and this is about one of them.",
            remedy=f"Say which: {option} {names[0]} (or {', '.join(names[1:])}).",
        )
    if not found[0].is_one_of_many:
        if only == found[0].name:
            return found[0]
        raise ConfigError(
            f"{file} has one destination, which has no name; there is none called {only}.",
            remedy="Leave the option out. Several destinations stand under `destinations:` "
            "(docs/many_destinations.md).",
        )
    for config in found:
        if config.destination_name == only:
            return config
    raise ConfigError(f"{file} has no destination {only}.", remedy=f"It has {', '.join(names)}.")


def load_deliveries(
    path: Path,
    *,
    environment: Mapping[str, str] = os.environ,
    validate_destination: DestinationValidator | None = None,
) -> tuple[PipelineConfig, ...]:
    """Read and validate a pipeline file: a view of it for each of its destinations, in order.

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
    views = [DestinationView("", substitution.value, frozenset(), replays_log=False)]
    if DESTINATIONS_KEY in substitution.value:
        views, problems = split(substitution.value)
    found = []
    names = tuple(view.name for view in views if view.name)
    for view in views:
        config, wrong = _validated(view, substitution.touched, validate_destination, path)
        problems += wrong
        if config is not None:
            config = _resolve_log_path(config, path.resolve().parent)
            found.append(config.one_of(view.name, names, replays_log=view.replays_log))
    if problems:
        # What is wrong with a shared part shows once for each destination.
        raise ConfigError(format_problems(str(path), dict.fromkeys(problems)), remedy=_REMEDY)
    return tuple(found)


def _validated(
    view: DestinationView,
    touched: Set[KeyPath],
    validate: DestinationValidator | None,
    path: Path,
) -> tuple[PipelineConfig | None, list[tuple[KeyPath, str]]]:
    model = pipeline_model(view.document)
    try:
        config = model.model_validate(view.document)
    except ValidationError as error:
        place = view.place if view.name else _as_it_is
        return None, describe(error, model=model, touched=touched, place=place)
    try:
        (validate or _registered)(config.destination_type, config.destination_options)
    except ValidationError as error:
        here: KeyPath = (DESTINATIONS_KEY, view.name) if view.name else ("destination",)
        return None, describe(
            error, model=None, touched=touched, place=lambda inside: (*here, *inside)
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", remedy=error.remedy) from None
    return config, []


def _as_it_is(path: KeyPath) -> KeyPath:
    return path


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
