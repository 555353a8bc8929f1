"""Destinations by the name that the pipeline file uses, found through entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from penstock import failpoints
from penstock.config import entry_point
from penstock.config.load import DESTINATION_OPTIONS, DESTINATIONS, options_model
from penstock.destination.contract import Destination
from penstock.destination.dead_letters import DeadLetterBox
from penstock.destination.protocols import KeepsDeadLetters, Unrestored
from penstock.model.errors import ConfigError

DEAD_LETTERS = "penstock.dead_letters"
"""The entry-point group in which destinations name who counts their dead letters."""

UNRESTORED = "penstock.unrestored"
"""The one in which they name who tells what of a whole schema they lack."""
DEAD_LETTER_BOXES = "penstock.dead_letter_boxes"
"""The group in which they name who lists and discards them."""


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
    return found(_validated(found.options_model, options), pipeline)


def count_dead_letters(name: str, options: dict[str, Any], pipeline: str) -> Mapping[str, int]:
    """How many refused rows of each source table the destination keeps. `penstock status` asks.

    A destination that names its options apart from its class names who counts, too, where it keeps
    any: a command that looks need not load what writes. Others are asked themselves. Raises
    DestinationError where the destination does not answer.
    """
    count: Callable[[BaseModel, str], Mapping[str, int]] | None
    count = entry_point.find(DEAD_LETTERS, name)
    if count is not None:
        return count(_validated(options_model(name), options), pipeline)
    if name in entry_point.names(DESTINATION_OPTIONS):
        return {}
    destination = make_destination(name, options, pipeline)
    try:
        return destination.dead_letters() if isinstance(destination, KeepsDeadLetters) else {}
    finally:
        destination.close()


def list_unrestored(name: str, options: dict[str, Any], pipeline: str) -> Sequence[Unrestored]:
    """What of the source's whole schema the destination lacks. `penstock status` asks those that
    name who tells it. Raises DestinationError where the destination does not answer.
    """
    tell: Callable[[BaseModel, str], Sequence[Unrestored]] | None
    tell = entry_point.find(UNRESTORED, name)
    return () if tell is None else tell(_validated(options_model(name), options), pipeline)


def dead_letter_box(name: str, options: dict[str, Any], pipeline: str) -> DeadLetterBox | None:
    """The refused rows that the destination keeps; None for one that keeps none."""
    make = entry_point.find(DEAD_LETTER_BOXES, name)
    if make is None:
        return None
    box: DeadLetterBox = make(_validated(options_model(name), options), pipeline)
    return box


def _validated(model: type[BaseModel], options: dict[str, Any]) -> Any:
    try:
        return model.model_validate(options)
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
