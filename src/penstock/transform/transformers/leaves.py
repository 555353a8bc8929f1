"""Rules within a rule: leaves of documents, each as a value of the type that it looks like.

Leaves of all rows that look alike are changed at once.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from penstock.transform.transformers.column_facts import ColumnFacts, text_facts
from penstock.transform.transformers.contract import (
    Inputs,
    Transformer,
    UnfitError,
    ValueRefusedError,
)
from penstock.transform.transformers.keys import Keys

LeafRule = dict[str, Any]
Leaf = tuple[Any, Any]
"""Where a leaf lies: its container, and its key or place there."""

_OWN = ("use", "domain", "type")
_ZONED = "timestamp with time zone"
_TYPES = ("text", "integer", "numeric", "boolean", "date", "timestamp", "uuid", "ip")
# What a text looks like; the first that the transformer takes counts.
_FORMS = (
    ("integer", re.compile(r"-?[0-9]{1,19}", re.ASCII)),
    ("numeric", re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)),
    ("date", re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)),
    ("timestamp", re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)),
    (
        _ZONED,
        re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d(:?\d\d)?)", re.ASCII),
    ),
    ("uuid", re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")),
)
_INTEGER = _FORMS[0][1]


def nested(rule: LeafRule, keys: Keys, facts: ColumnFacts, where: str) -> Transformer:
    """The transformer of a rule within a rule. Raises UnfitError."""
    from penstock.transform.transformers.registry import transformer_class

    options = {key: value for key, value in rule.items() if key not in _OWN}
    kind = transformer_class(str(rule.get("use")))
    try:
        model: BaseModel = kind.options_model.model_validate(options)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, (where, *problem["loc"])))
        raise UnfitError(f"{place}: {problem['msg']}") from None
    domain = str(rule.get("domain", keys.domain))
    made = kind(model, Keys(keys.master, domain), facts)
    if made.raw_inputs or made.made_inputs:
        raise UnfitError(f"{where}: {rule.get('use')} needs other columns, which a leaf has not")
    if kind.families is not None and made.facts.family not in kind.families:
        raise UnfitError(f"{where}: {rule.get('use')} does not take a {made.facts.family}")
    made.check()
    return made


def mark(rule: Transformer) -> str:
    """The vocabulary of a rule within a rule, and its version once it has a second one."""
    return rule.vocabulary + (f" version {rule.version}" if rule.version > 1 else "")


class LeafTransformer:
    """What becomes of the leaves of one path. Can be pickled.

    A transformer of texts takes all leaves as texts. One that takes none gets numbers as numbers,
    and texts as what they look like: so an integer becomes what it becomes in a column. ``type`` in
    the rule says it of all leaves.
    """

    def __init__(self, rule: LeafRule, keys: Keys, where: str) -> None:
        from penstock.transform.transformers.registry import transformer_class

        families = transformer_class(str(rule.get("use"))).families
        said = rule.get("type")
        if said is not None and said not in _TYPES:
            raise UnfitError(f"{where}: type is one of {', '.join(_TYPES)}")
        if said is not None or families is None or "text" in families:
            taken = [said or "text"]
        else:
            taken = [family for family in _TYPES if family in families] or ["text"]
        self._rules = {family: nested(rule, keys, _facts(where, family), where) for family in taken}
        if "timestamp" in self._rules:
            self._rules[_ZONED] = nested(rule, keys, _facts(where, _ZONED), where)
        self._only = taken[0] if taken[0] in ("text", "ip") else None

    @property
    def is_random(self) -> bool:
        return any(rule.is_random for rule in self._rules.values())

    @property
    def mark(self) -> str:
        return mark(next(iter(self._rules.values())))

    def apply(self, leaves: list[Leaf]) -> None:
        """Change leaves; nulls stay. Raises ValueRefusedError."""
        groups: dict[str, list[Leaf]] = {}
        for leaf in leaves:
            value = leaf[0][leaf[1]]
            if value is not None:
                groups.setdefault(self._family(value), []).append(leaf)
        for family, found in groups.items():
            change(found, self._rules[family])

    def _family(self, value: Any) -> str:
        if self._only is not None:
            return self._only
        if isinstance(value, bool):
            found = ["boolean"]
        elif isinstance(value, str):
            found = [family for family, form in _FORMS if form.fullmatch(value)]
        elif isinstance(value, dict | list):
            found = []
        else:
            is_whole = _INTEGER.fullmatch(_leaf_text(value)) is not None
            found = ["integer", "numeric"] if is_whole else ["numeric"]
        for family in found:
            if family in self._rules:
                return family
        raise ValueRefusedError("a leaf of a document is of a type that it does not take")


def _facts(name: str, family: str) -> ColumnFacts:
    facts = text_facts(name, "timestamp" if family == _ZONED else family)
    return replace(facts, zoned=family == _ZONED)


def change(leaves: list[Leaf], rule: Transformer) -> None:
    """Texts stay texts; a number stays one where a number took its place. Nulls stay."""
    found = [leaf for leaf in leaves if leaf[0][leaf[1]] is not None]
    if not found:
        return
    texts = [_leaf_text(node[key]) for node, key in found]
    is_time = rule.facts.family == "timestamp"
    given = [_postgres_time(text) for text in texts] if is_time else texts
    made = rule.apply(pa.array(given, pa.string()), Inputs()).to_pylist()
    for (node, key), before, text in zip(found, texts, made, strict=True):
        value = node[key]
        if isinstance(value, bool) and rule.facts.family == "boolean":
            node[key] = None if text is None else text in ("t", "true")
        elif isinstance(value, str | bool | dict | list):
            node[key] = _iso_time(text, before) if is_time and text is not None else text
        else:
            node[key] = _number(text)


def _postgres_time(text: str) -> str:
    """2024-01-02T03:04:05Z as Postgres writes it."""
    zone = re.search(r"(?:Z|([+-]\d\d):?(\d\d)?)$", text[10:])
    if zone is None:
        return text.replace("T", " ")
    hours, minutes = zone[1] or "+00", zone[2] or "00"
    return f"{text[: 10 + zone.start()].replace('T', ' ')}{hours}:{minutes}"


def _iso_time(text: str, before: str) -> str:
    """As it was written before, at UTC where it had a zone."""
    if "T" in before:
        text = text.replace(" ", "T").removesuffix("+00") + ("Z" if text.endswith("+00") else "")
    return text


def _number(text: str | None) -> Any:
    if text is None or not re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text, re.ASCII):
        return text
    import orjson

    return orjson.Fragment(text)


def _leaf_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import orjson

    return orjson.dumps(value).decode()
