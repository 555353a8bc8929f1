"""Destinations by the name that the pipeline file uses, found through entry points."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from penstock import failpoints
from penstock.config import entry_point
from penstock.config.load import DESTINATIONS
from penstock.destination.contract import Destination
from penstock.model.errors import ConfigError


def destination_names() -> list[str]:
    return entry_point.names(DESTINATIONS)


def destination_class(name: str) -> type[Destination]:
    """The class behind ``type: name``. A package can add its own to the entry-point group."""
    loaded: type[Destination] = entry_point.load(
        DESTINATIONS, name, "destination.type", "destination"
    )
    return loaded


def make_destination(name: str, options: dict[str, Any], pipeline: str) -> Destination:
    """The destination that the pipeline file describes; not opened yet.

    Raises ConfigError where the file is wrong, and ValueError where a failpoint is set that its
    destination does not have: a test that names it wrongly must not pass.
    """
    _check_failpoints()
    found = destination_class(name)
    try:
        return found(found.options_model.model_validate(options), pipeline)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"destination.{path}: {first['msg']}") from None


def _check_failpoints() -> None:
    for point in failpoints.destination_points():
        name = point.partition(".")[0]
        known = destination_class(name).failpoints if name in destination_names() else ()
        if point not in known:
            raise ValueError(
                f"PENSTOCK_FAILPOINTS: no destination declares {point!r}; places of {name}: "
                f"{', '.join(known) or 'none'}"
            )
