"""Documents: JSON and hstore by path, arrays by element. Leaves of all rows are changed at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.decode.types.array_text import split_array
from penstock.decode.types.text_column import MalformedTextError
from penstock.transform.transformers.column_facts import text_facts
from penstock.transform.transformers.contract import (
    Inputs,
    NoOptions,
    Transformer,
    UnfitError,
    Uniqueness,
    ValueRefusedError,
)
from penstock.transform.transformers.keys import Keys
from penstock.transform.transformers.leaves import (
    Leaf,
    LeafRule,
    LeafTransformer,
    change,
    mark,
    nested,
)


class JsonOptions(NoOptions):
    """By path (``address.city``, ``items[*].email``, ``*`` for every key): values to ``set``, paths
    to ``delete``, rules to ``transform`` leaves with.
    """

    set: dict[str, Any] = Field(default_factory=dict)
    delete: list[str] = Field(default_factory=list)
    transform: dict[str, LeafRule] = Field(default_factory=dict)
    others: Literal["keep", "delete"] = "keep"
    """What becomes of keys at the top that no path begins with."""


_STEP = re.compile(r'(?:^|\.)(?:"((?:[^"\\]|\\.)*)"|([^.\[\]"]+))|\[(\*|\d+)\]')
Step = str | int


def path_steps(path: str) -> tuple[Step, ...]:
    """``a."b.c"[0].*`` in steps. Raises UnfitError."""
    steps: list[Step] = []
    at = 0
    text = path.removeprefix("$.")
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or found.end() == at:
            raise UnfitError(f"{path!r} is no path such as address.city or items[*].email")
        if found[3] is not None:
            steps.append("*" if found[3] == "*" else int(found[3]))
        else:
            quoted = found[1]
            steps.append(quoted.replace('\\"', '"') if quoted is not None else found[2])
        at = found.end()
    if not steps:
        raise UnfitError("a path is empty")
    return tuple(steps)


def _leaves(node: Any, steps: tuple[Step, ...]) -> Iterator[Leaf]:
    step, rest = steps[0], steps[1:]
    keys: Any
    if isinstance(node, dict):
        keys = list(node) if step == "*" else [step] if step in node else []
    elif isinstance(node, list):
        # A key goes through lists: items.email is items[*].email.
        if isinstance(step, str) and step != "*":
            for item in node:
                yield from _leaves(item, steps)
            return
        keys = range(len(node)) if step == "*" else [step] if int(step) < len(node) else []
    else:
        return
    for key in keys:
        if rest:
            yield from _leaves(node[key], rest)
        else:
            yield node, key


def _all_leaves(documents: list[Any], steps: tuple[Step, ...]) -> list[Leaf]:
    """Those of all documents. A path of keys alone, through objects alone, is found fast."""
    if any(step == "*" or isinstance(step, int) for step in steps):
        return [leaf for document in documents for leaf in _leaves(document, steps)]
    found: list[Leaf] = []
    way, key = steps[:-1], steps[-1]
    for document in documents:
        node = document
        for step in way:
            if type(node) is not dict:
                break
            node = node.get(step)
        if type(node) is dict:
            if key in node:
                found.append((node, key))
        elif node is not None:
            found += _leaves(document, steps)
    return found


class Json(Transformer):
    """JSON of which some leaves change."""

    options_model = JsonOptions
    families = frozenset({"json", "text"})
    is_keyed = False
    version = 2  # numbers with a point stay numbers

    def __init__(self, options: Any, keys: Keys, facts: Any) -> None:
        super().__init__(options, keys, facts)
        self._set = [(path_steps(path), value) for path, value in options.set.items()]
        self._delete = [path_steps(path) for path in options.delete]
        self._rules = [
            (path_steps(path), LeafTransformer(rule, keys, path))
            for path, rule in options.transform.items()
        ]
        named = (*options.set, *options.delete, *options.transform)
        self._known = {path_steps(path)[0] for path in named}

    @property
    def is_random(self) -> bool:
        return any(rule.is_random for _steps, rule in self._rules)

    @property
    def vocabulary(self) -> str:
        return "".join(rule.mark for _steps, rule in self._rules)

    def check(self) -> None:
        if not (self._set or self._delete or self._rules or self.options.others == "delete"):
            raise UnfitError("write set, delete or transform")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        import orjson

        documents = _parsed(values)
        if self.options.others == "delete":
            documents = [
                {key: v for key, v in document.items() if key in self._known or "*" in self._known}
                if isinstance(document, dict)
                else document
                for document in documents
            ]
        for steps in self._delete:
            _delete(documents, steps)
        for steps, value in self._set:
            for node, key in _all_leaves(documents, steps):
                node[key] = value
        for steps, rule in self._rules:
            rule.apply(_all_leaves(documents, steps))
        return self.cut(pa.array([orjson.dumps(d).decode() for d in documents], pa.string()))


def _delete(documents: list[Any], steps: tuple[Step, ...]) -> None:
    for document in documents:
        # From behind, so that places before stay what they are.
        for node, key in reversed(list(_leaves(document, steps))):
            del node[key]


# Numbers that doubles would not give back as they were.
_EXACT = r"[0-9]{16,}|[0-9]\.[0-9]|[0-9][eE]"


def _parsed(values: pa.Array) -> list[Any]:
    import orjson

    texts = values.to_pylist()
    doubtful = pc.match_substring_regex(values, _EXACT).to_pylist()
    try:
        return [
            _exact(text) if odd else orjson.loads(text)
            for text, odd in zip(texts, doubtful, strict=True)
        ]
    except ValueError:
        raise ValueRefusedError("a value is no JSON") from None


def _exact(text: str) -> Any:
    import orjson

    fragment: Callable[[str], Any] = orjson.Fragment
    return json.loads(
        text,
        parse_float=fragment,
        parse_int=lambda digits: int(digits) if len(digits) < 19 else fragment(digits),
    )


class HstoreOptions(NoOptions):
    """By key: values to ``set`` where the key is there, keys to ``delete``, rules to ``transform``
    values with.
    """

    set: dict[str, str | None] = Field(default_factory=dict)
    delete: list[str] = Field(default_factory=list)
    transform: dict[str, LeafRule] = Field(default_factory=dict)


_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, )?', re.DOTALL)


class Hstore(Transformer):
    """An hstore of which some values change."""

    options_model = HstoreOptions
    families = frozenset({"hstore"})
    is_keyed = False

    def __init__(self, options: Any, keys: Keys, facts: Any) -> None:
        super().__init__(options, keys, facts)
        self._rules = {
            key: LeafTransformer(rule, keys, key) for key, rule in options.transform.items()
        }

    @property
    def is_random(self) -> bool:
        return any(rule.is_random for rule in self._rules.values())

    @property
    def vocabulary(self) -> str:
        return "".join(rule.mark for rule in self._rules.values())

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        rows = [_pairs(text) for text in values.to_pylist()]
        for row in rows:
            for key in self.options.delete:
                row.pop(key, None)
            row.update({key: value for key, value in self.options.set.items() if key in row})
        for key, rule in self._rules.items():
            rule.apply([(row, key) for row in rows if key in row])
        return pa.array(map(_hstore_text, rows), pa.string())


def _pairs(text: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ValueRefusedError("a value is no hstore")
        found[_unescaped(pair[1])] = None if pair[2] is None else _unescaped(pair[2])
        at = pair.end()
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _hstore_text(row: dict[str, str | None]) -> str:
    return ", ".join(
        f"{_quoted(key)}=>{'NULL' if value is None else _quoted(value)}"
        for key, value in row.items()
    )


class ArrayOptions(NoOptions):
    """``each`` is the rule of every element."""

    each: LeafRule = Field(min_length=1)


class Array(Transformer):
    """An array whose elements change; their number and order stay."""

    options_model = ArrayOptions
    families = frozenset({"array"})
    is_keyed = False

    def __init__(self, options: Any, keys: Keys, facts: Any) -> None:
        super().__init__(options, keys, facts)
        element = facts.element or text_facts(facts.name)
        self._rule = nested(options.each, keys, element, "each")

    @property
    def is_random(self) -> bool:
        return self._rule.is_random

    @property
    def uniqueness(self) -> Uniqueness:
        return self._rule.uniqueness

    @property
    def vocabulary(self) -> str:
        return mark(self._rule)

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        try:
            rows = [split_array(text) for text in values.to_pylist()]
        except MalformedTextError:
            raise ValueRefusedError("a value is no array") from None
        change(
            [(row.elements, place) for row in rows for place in range(len(row.elements))],
            self._rule,
        )
        return pa.array([_array_text(row) for row in rows], pa.string())


_PLAIN = re.compile(r'[^\s{}",\\]+')


def _element(text: str) -> str:
    """As array_out writes it: quoted where it has to be."""
    if _PLAIN.fullmatch(text) and text.upper() != "NULL":
        return text
    return _quoted(text)


def _array_text(row: Any) -> str:
    if not row.dimensions:
        return "{}"
    bounds = ""
    if any(low != 1 for low in row.lower_bounds):
        pairs = zip(row.lower_bounds, row.dimensions, strict=True)
        bounds = "".join(f"[{low}:{low + size - 1}]" for low, size in pairs) + "="
    parts = ["NULL" if text is None else _element(text) for text in row.elements]
    for size in reversed(row.dimensions):
        parts = ["{" + ",".join(parts[at : at + size]) + "}" for at in range(0, len(parts), size)]
    return bounds + parts[0]
