"""`destinations:` of the pipeline file: what each of them sees of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config.environment import KeyPath
from penstock.config.models import MAX_NAME_LENGTH, delivery_name

DESTINATIONS_KEY = "destinations"

OWN_KEYS = ("batch", "copy", "filter", "from", "schema_changes", "transform")
"""What stands beside a destination's own options, and counts for it alone."""

_STARTS = ("source", "log")

Problem = tuple[KeyPath, str]


@dataclass(frozen=True)
class DestinationView:
    """The file as if ``name`` were its only destination."""

    name: str
    document: dict[str, Any]
    own: frozenset[str]
    replays_log: bool

    def place(self, path: KeyPath) -> KeyPath:
        """Where in the file a path of the document stands."""
        here: KeyPath = (DESTINATIONS_KEY, self.name)
        if path[:1] == ("destination",):
            return (*here, *path[1:])
        if path[:2] == ("source", "copy") and "copy" in self.own:
            return (*here, *path[1:])
        return (*here, *path) if path and path[0] in self.own else path


def split(document: Mapping[str, Any]) -> tuple[list[DestinationView], list[Problem]]:
    """A view for each destination, and what is wrong with them as far as it shows here."""
    found = document[DESTINATIONS_KEY]
    if not isinstance(found, dict) or not found:
        return [], [((DESTINATIONS_KEY,), "expected a mapping of names to destinations")]
    shared = {key: value for key, value in document.items() if key != DESTINATIONS_KEY}
    problems: list[Problem] = []
    if "destination" in shared:
        text = "a file has destination, for one, or destinations, for several; leave one out"
        problems.append((("destination",), text))
        del shared["destination"]
    views = []
    for name, value in found.items():
        here: KeyPath = (DESTINATIONS_KEY, str(name))
        wrong: list[Problem] = [(here, text) for text in _wrong_name(document.get("name"), name)]
        if not isinstance(value, dict):
            wrong.append((here, "expected a mapping: type, and the destination's own keys"))
        else:
            wrong += [((*here, *path), text) for path, text in _wrong_keys(value)]
        problems += wrong
        if not wrong:
            views.append(_view(name, value, shared))
    return views, problems


def _view(name: str, value: Mapping[str, Any], shared: Mapping[str, Any]) -> DestinationView:
    own = {key: value[key] for key in OWN_KEYS if key in value}
    document: dict[str, Any] = {
        **shared,
        **{key: own[key] for key in ("batch", "filter", "transform") if key in own},
        "destination": {key: part for key, part in value.items() if key not in OWN_KEYS},
    }
    replays = own.get("from") == "log"
    if "schema_changes" in own:
        # The triggers are the pipeline's: whether there are any is said once, above.
        above = shared.get("schema_changes")
        track = {"track": above["track"]} if isinstance(above, dict) and "track" in above else {}
        document["schema_changes"] = {**track, **own["schema_changes"]}
    if (replays or "copy" in own) and isinstance(shared.get("source"), dict):
        # What the log tells from its beginning on is instead of a copy.
        document["source"] = {**shared["source"], "copy": False if replays else own["copy"]}
    return DestinationView(name, document, frozenset(own), replays)


def _wrong_name(pipeline: object, name: object) -> Iterator[str]:
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
        yield "a destination's name consists of lower-case letters, digits and _"
    elif isinstance(pipeline, str) and len(delivery_name(pipeline, name)) > MAX_NAME_LENGTH:
        yield (
            f"the names of pipeline and destination have {len(pipeline) + len(name)} characters; "
            f"together they may have {MAX_NAME_LENGTH - 1}"
        )


def _wrong_keys(value: Mapping[str, Any]) -> Iterator[Problem]:
    start = value.get("from", "source")
    if start not in _STARTS:
        yield ("from",), f"expected {' or '.join(_STARTS)}"
    if start == "log" and value.get("copy", False) is not False:
        yield ("copy",), "with `from: log` the log takes the place of a copy; leave one of them out"
    changes = value.get("schema_changes")
    if "schema_changes" in value and not isinstance(changes, dict):
        yield ("schema_changes",), "expected a mapping of keys to values"
    elif isinstance(changes, dict) and "track" in changes:
        yield (
            ("schema_changes", "track"),
            "the triggers are the pipeline's: write it at the top, under schema_changes",
        )
