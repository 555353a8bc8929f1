"""YAML text to plain values, strictly: no key twice, and every refusal names line and column."""

from __future__ import annotations

from typing import Any

import yaml

from penstock.model.errors import ConfigError


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses what YAML otherwise takes in silence."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        # An alias may stand inside its own anchor, which makes a document without an end.
        loader: Any = self  # the stubs leave these methods without types
        if loader.check_event(yaml.AliasEvent):
            event = loader.peek_event()
            if event.anchor in loader.anchors and loader.anchors[event.anchor].end_mark is None:
                raise yaml.MarkedYAMLError(
                    problem=f"*{event.anchor} stands inside the value that it refers to",
                    problem_mark=event.start_mark,
                )
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        # Here, not while values are made: merge keys (<<) repeat keys there on purpose.
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(
                    problem="this key is not a text; put it in quotes", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f'the key "{key.value}" stands here a second time',
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return node


def read_yaml(text: str, name: str) -> Any:
    """The document in ``text``; raises ConfigError that names ``name``, line and column."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(
            f"{name}{where}: {error.problem or error.context}",
            remedy="Correct the YAML at that place; indentation is part of its syntax.",
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{name} is not YAML: {error}",
            remedy="Save the file as plain UTF-8 text without control characters.",
        ) from None
