"""A pipeline file as it may be shown: what could be a secret is left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from penstock.config.destinations import DESTINATIONS_KEY, OWN_KEYS, split
from penstock.config.load import options_model
from penstock.config.secret_names import SECRET_NAME
from penstock.config.yaml_document import read_yaml

if TYPE_CHECKING:
    from penstock.config import PipelineConfig

HIDDEN = "(hidden)"

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]*@")


def shown_configuration(views: Sequence[PipelineConfig], file: Path) -> dict[str, Any]:
    """Every key with its value, defaults included. Where the file names a variable of the
    environment, that name is shown instead of what it stands for. ``views`` are the file's
    destinations; each has what counts for it alone beside its options, wherever that is written.
    """
    written = read_yaml(file.read_text(encoding="utf-8"), str(file))
    if not views[0].is_one_of_many:
        return _shown_view(views[0], written)
    as_written = {view.name: view.document for view in split(written)[0]}
    shown = {
        view.destination_name: _shown_view(view, as_written.get(view.destination_name))
        for view in views
    }
    whole = dict(shown[views[0].destination_name])
    whole["source"] = {key: part for key, part in whole["source"].items() if key != "copy"}
    for key in (*OWN_KEYS, "destination"):
        whole.pop(key, None)
    whole[DESTINATIONS_KEY] = {
        view.destination_name: _shown_destination(view, shown[view.destination_name])
        for view in views
    }
    return whole


def _shown_destination(view: PipelineConfig, shown: dict[str, Any]) -> dict[str, Any]:
    own = {key: shown[key] for key in OWN_KEYS if key in shown}
    beginning = {"from": "log" if view.replays_log else "source", "copy": shown["source"]["copy"]}
    return {**shown["destination"], **beginning, **own}


def _shown_view(config: PipelineConfig, written: Any) -> dict[str, Any]:
    """The file as if this were its only destination."""
    values = config.model_dump(mode="json", exclude={"destination"}, by_alias=True)
    # As people write it.
    values["source"]["copy"] = values["source"]["copy"] or False
    if values["source"]["type"] == "kafka":
        # That is the store's, and no key of such a file.
        del values["source"]["url"]
    kind = config.destination_type
    options: BaseModel = options_model(kind).model_validate(config.destination_options)
    destination = {"type": kind, **options.model_dump(mode="json", by_alias=True)}
    shown = _shown({**values, "destination": destination}, written, "")
    assert isinstance(shown, dict)  # noqa: S101 (a mapping stays one)
    return shown


def _shown(value: Any, written: Any, name: str) -> Any:
    if isinstance(written, str) and _REFERENCE.search(written):
        # Beside a reference there may be a secret, too.
        return written if _REFERENCE.fullmatch(written.strip()) else HIDDEN
    if isinstance(value, dict):
        given = written if isinstance(written, dict) else {}
        return {key: _shown(item, given.get(key), str(key)) for key, item in value.items()}
    if isinstance(value, list):
        given_items = written if isinstance(written, list) else []
        padded = [*given_items, *[None] * (len(value) - len(given_items))]
        return [_shown(item, padded[index], name) for index, item in enumerate(value)]
    if value is not None and not isinstance(value, bool) and SECRET_NAME.search(name):
        return HIDDEN
    return _without_user(value) if isinstance(value, str) else value


def _without_user(text: str) -> str:
    """A URL without who signs in: libpq's own are without a password by now, others may not be."""
    return _USER_IN_URL.sub(lambda found: _user(found[0]), text)


def _user(text: str) -> str:
    return f"{text[:-1].partition(':')[0]}@" if ":" in text else text
