"""Rules proposed from what columns are called, hold and say of themselves. Nothing is applied."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.model.table_definition import ColumnDefinition, TableDefinition
from penstock.transform.anonymizer_labels import called_rule, labelled_rule
from penstock.transform.transformers.column_facts import ColumnFacts


@dataclass(frozen=True)
class ColumnHints:
    """What the source knows of a column beside its definition. ``samples`` are some of its values;
    none of them is shown. ``functions`` are those of PostgreSQL Anonymizer that it has, each with
    whether it draws.
    """

    samples: Sequence[str] = ()
    label: str = ""
    comment: str = ""
    functions: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Suggestion:
    """A rule for a column, and why."""

    rule: dict[str, Any] | str
    why: str


# The first that fits by name and family counts.
_NAMES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (r"e?_?mail", "text", {"use": "email"}),
    (r"first_?name|given_?name|vorname|forename", "text", {"use": "first_name"}),
    (r"last_?name|sur_?name|family_?name|nachname", "text", {"use": "last_name"}),
    (r"(full_?|user_?|customer_?|contact_?|person_?)name|^name$", "text", {"use": "person_name"}),
    (r"phone|mobile|fax|telefon", "text", {"use": "phone_number"}),
    (r"password|passwd|secret|api_?key|token", "text", {"use": "mask", "kind": "password"}),
    (r"street|address(_?line)?|strasse", "text", {"use": "address"}),
    (r"^city$|_city|town|^ort$", "text", {"use": "city"}),
    (r"zip|postal|postcode|^plz$", "text", {"use": "postal_code"}),
    (r"company|firma|employer", "text", {"use": "company"}),
    (r"iban|account_?(no|number)|ssn|tax_?id|passport|social_?sec|license", "text",
     {"use": "token", "alphabet": "alphanumeric", "short": "hash"}),
    (r"card_?(no|number)|credit_?card|^pan$", "text", {"use": "mask", "kind": "card"}),
    (r"birth|^born|dob|geburt", "date", {"use": "truncate_time", "to": "year"}),
    (r"birth|^born|dob|geburt", "timestamp", {"use": "truncate_time", "to": "year"}),
    (r"(^|_)ip(_|$)|ip_?addr|remote_addr", "text", {"use": "truncate_ip"}),
    (r"lat(itude)?$|lon(g|gitude)?$|lng$", "float", {"use": "geo_noise"}),
    (r"lat(itude)?$|lon(g|gitude)?$|lng$", "numeric", {"use": "geo_noise"}),
    (r"salary|income|wage|gehalt", "numeric", {"use": "noise", "ratio": 0.1}),
    (r"salary|income|wage|gehalt", "integer", {"use": "noise", "ratio": 0.1}),
    (r"note|comment|message|description|remark|body", "text", {"use": "redact"}),
    (r"user_?agent|device", "text", {"use": "hash"}),
)  # fmt: skip
_FAMILIES = {"ip": {"use": "truncate_ip"}, "point": {"use": "geo_noise"}}
_SHAPES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("emails", r"[^@\s]+@[^@\s]+\.[a-zA-Z]{2,}", {"use": "email"}),
    ("card numbers", r"(?:[0-9][ -]?){12,18}[0-9]", {"use": "mask", "kind": "card"}),
    ("phone numbers", r"\+?[0-9][0-9 ()/.-]{6,18}[0-9]", {"use": "phone_number"}),
    ("network addresses", r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}", {"use": "truncate_ip"}),
    ("IBANs", r"[A-Z]{2}[0-9]{2}[A-Z0-9 ]{11,30}",
     {"use": "token", "alphabet": "alphanumeric", "short": "hash"}),
)  # fmt: skip
_SENSITIVE = re.compile(r"\b(pii|personal|gdpr|dsgvo|sensitive|confidential|private)\b", re.I)


def suggest(table: TableDefinition, hints: Mapping[str, ColumnHints]) -> dict[str, Suggestion]:
    """A rule for every column that looks like a person's, and for what refers to people by key
    nothing: keys stay, unless somebody decides otherwise.
    """
    found = {}
    keys = {*table.primary_key, *(name for key in table.unique_keys for name in key)}
    for column in table.columns:
        if not column.is_delivered:
            continue
        facts = ColumnFacts.of_definition(column, table.types)
        made = _column(column, facts, hints.get(column.name, ColumnHints()))
        if made is not None and column.name in table.primary_key:
            made = Suggestion(_for_key(facts), f"{made.why}; it is part of the key")
        elif made is not None and column.name in keys and isinstance(made.rule, dict):
            made = Suggestion(_for_unique(made.rule, facts), f"{made.why}; it is unique")
        if made is not None:
            found[column.name] = made
    return found


def _column(column: ColumnDefinition, facts: ColumnFacts, hints: ColumnHints) -> Suggestion | None:
    if hints.label:
        return _labelled(column.name, hints)
    for pattern, family, rule in _NAMES:
        if facts.family == family and re.search(pattern, column.name.lower()):
            return Suggestion(rule, "by its name")
    if facts.family in _FAMILIES:
        return Suggestion(_FAMILIES[facts.family], f"by its type {facts.type_name}")
    if facts.family == "text":
        for what, form, rule in _SHAPES:
            matching = sum(re.fullmatch(form, text.strip()) is not None for text in hints.samples)
            if matching and matching * 2 >= len(hints.samples):
                return Suggestion(rule, f"its values look like {what}")
    if _SENSITIVE.search(hints.comment):
        rule = {"use": "hash"} if facts.family in ("text", "bytea") else {"use": "null"}
        return Suggestion(rule, "its comment says that it is personal")
    return None


def _labelled(column: str, hints: ColumnHints) -> Suggestion:
    """A security label of PostgreSQL Anonymizer."""
    rule, function = labelled_rule(hints.label)
    if rule is None and (call := called_rule(hints.label, column, hints.functions)) is not None:
        why = f"its security label ({function}), by calling the function where the source has it"
        return Suggestion(call, why)
    if rule is None:
        return Suggestion({"use": "null"}, "its security label, which names no function known here")
    return Suggestion(
        rule, f"its security label ({function})" if function else "its security label"
    )


def _for_key(facts: ColumnFacts) -> dict[str, Any]:
    by_family = {"integer": "integer_key", "uuid": "uuid"}
    if facts.family == "text" and facts.length is not None:
        return {"use": "token"}
    return {"use": by_family.get(facts.family, "encrypt")}


def _for_unique(rule: dict[str, Any], facts: ColumnFacts) -> dict[str, Any]:
    if rule["use"] in ("email", "hash", "token", "uuid"):
        return rule
    return {"use": "hash"} if facts.family in ("text", "bytea") else _for_key(facts)
