"""Security labels of PostgreSQL Anonymizer, as rules. Functions that no other transformer knows are
called where the source has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Rule = dict[str, Any]

_NAMED: Mapping[str, Rule] = {
    "fake_first_name": {"use": "first_name"},
    "dummy_first_name": {"use": "first_name"},
    "random_first_name": {"use": "first_name", "random": True},
    "fake_last_name": {"use": "last_name"},
    "dummy_last_name": {"use": "last_name"},
    "random_last_name": {"use": "last_name", "random": True},
    "dummy_name": {"use": "person_name"},
    "fake_email": {"use": "email"},
    "dummy_free_email": {"use": "email"},
    "fake_city": {"use": "city"},
    "fake_company": {"use": "company"},
    "fake_country": {"use": "country"},
    "fake_address": {"use": "address"},
    "fake_postcode": {"use": "postal_code"},
    "random_zip": {"use": "postal_code", "random": True},
    "random_phone": {"use": "phone_number", "random": True},
    "random_string": {"use": "string", "random": True},
    "random_date": {"use": "date", "random": True},
    "random_date_between": {"use": "date", "random": True},
    "random_int_between": {"use": "integer", "random": True},
    "random_bigint_between": {"use": "integer", "random": True},
    "partial_email": {"use": "mask", "kind": "email"},
    "partial": {"use": "mask", "keep_first": 2, "keep_last": 2},
    "pseudo_first_name": {"use": "first_name"},
    "pseudo_last_name": {"use": "last_name"},
    "pseudo_email": {"use": "email"},
    "pseudo_city": {"use": "city"},
    "pseudo_company": {"use": "company"},
    "hash": {"use": "hash"},
    "digest": {"use": "hash"},
    "noise": {"use": "noise", "ratio": 0.1},
    "dnoise": {"use": "time_noise", "days": 30},
    "lorem_ipsum": {"use": "literal", "value": "lorem ipsum"},
}
_FUNCTION = re.compile(r"MASKED\s+WITH\s+FUNCTION\s+(?:[\w.]*\.)?(\w+)\s*\((.*)\)", re.I | re.S)
_TEXT = r"'(?P<text>(?:[^']|'')*)'|\$(?P<tag>\w*)\$(?P<dollars>.*?)\$(?P=tag)\$"
_NUMBER = r"(?P<number>(?<![\w.])-?\d+(?:\.\d+)?)"
_VALUE = re.compile(rf"MASKED\s+WITH\s+VALUE\s+(?:(?P<null>NULL)\b|{_TEXT}|{_NUMBER})", re.I | re.S)
_CONSTANT = re.compile(rf"{_TEXT}|{_NUMBER}", re.S)
_CALL = re.compile(r"MASKED\s+WITH\s+FUNCTION\s+(?:anon\.)?(\w+)\s*\((.*)\)", re.I | re.S)
_ARGUMENT = re.compile(
    rf"\s*(?:{_TEXT}|{_NUMBER}|(?P<name>\w+))"
    r"\s*(?:::\s*[\w ]+)?\s*(?:,|$)",
    re.S,
)
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


def labelled_rule(label: str) -> tuple[Rule | str | None, str]:
    """The rule that does what a label says, and its function's name; None where none does."""
    function, value = _FUNCTION.search(label), _VALUE.search(label)
    if function is not None:
        name = function[1].lower()
        arguments = _constants(function[2])
        if name == "random_in" and arguments:
            return {"use": "choice", "choices": list(arguments), "random": True}, name
        found = _NAMED.get(name.removesuffix("_locale"))
        return None if found is None else {**found, **_options(name, arguments)}, name
    if value is not None:
        if value["null"]:
            return {"use": "null"}, ""
        return {"use": "literal", "value": _constant(value)}, ""
    return ("keep" if re.search(r"NOT\s+MASKED", label, re.I) else None), ""


def called_rule(label: str, column: str, functions: Mapping[str, bool]) -> Rule | None:
    """The rule that calls the label's very function; None where that is none of ``functions``, or
    its arguments are more than the column and constants. ``functions`` are those of the extension,
    each with whether it draws.
    """
    call = _CALL.search(label)
    if call is None or (name := call[1].lower()) not in functions:
        return None
    arguments = _arguments(call[2], column)
    if arguments is None:
        return None
    rule: Rule = {"use": "anonymizer", "function": name, "arguments": arguments}
    return {**rule, "random": True} if functions[name] else rule


def _arguments(text: str, column: str) -> list[Any] | None:
    found: list[Any] = []
    at, text = 0, text.strip()
    while at < len(text):
        each = _ARGUMENT.match(text, at)
        if each is None:
            return None
        at = each.end()
        if (number := each["number"]) is not None:
            found.append(float(number) if "." in number else int(number))
        elif each["name"] is None:
            found.append(_constant(each))
        elif each["name"].lower() == column:
            found.append("{value}")
        else:
            return None
    return found


def _constants(text: str) -> list[str]:
    """The arguments that somebody wrote down: texts and numbers, not columns."""
    return [_constant(each) for each in _CONSTANT.finditer(text)]


def _constant(found: re.Match[str]) -> str:
    if found["text"] is not None:
        return found["text"].replace("''", "'")
    return found["dollars"] or found["number"] or ""


def _options(name: str, arguments: Sequence[str]) -> Rule:
    """What they mean; nothing where they are others than the function has."""
    match name, list(arguments):
        case "partial", [first, padding, last] if first.isdigit() and last.isdigit():
            same = {"character": padding[0]} if len(set(padding)) == 1 else {}
            return {"keep_first": int(first), "keep_last": int(last), **same}
        case "random_string", [length] if length.isdigit():
            return {"min_length": int(length), "max_length": int(length)}
        case (("random_int_between" | "random_bigint_between"), [low, high]) if _are_whole(
            low, high
        ):
            return {"min": int(low), "max": int(high)}
        case "random_date_between", [low, high] if _are_dates(low, high):
            return {"min": low[:10], "max": high[:10]}
        case "random_phone", [prefix]:
            return {"format": f"{prefix}#########"}
        case "noise", [ratio] if re.fullmatch(r"\d+(\.\d+)?", ratio):
            return {"ratio": float(ratio)}
        case "dnoise", [interval] if days := _days(interval):
            return {"days": days}
        case _, [locale] if name.endswith("_locale"):
            return {"locale": locale.split("_")[0].lower()}
    return {}


def _are_whole(*texts: str) -> bool:
    return all(re.fullmatch(r"-?\d+", text) for text in texts)


def _are_dates(*texts: str) -> bool:
    return all(re.match(r"\d{4}-\d\d-\d\d", text) for text in texts)


def _days(interval: str) -> int:
    found = re.findall(r"(\d+)\s*(day|week|month|year)s?", interval, re.I)
    return sum(int(count) * _DAYS[unit.lower()] for count, unit in found)
