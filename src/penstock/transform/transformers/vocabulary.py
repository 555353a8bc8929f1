"""Words to choose from, of the package mimesis: names, streets, cities, companies."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import pyarrow as pa

from penstock.model.errors import ConfigError
from penstock.transform.transformers.contract import UnfitError

_FOLDERS = {
    "first_name": ("person.json", "names"),
    "last_name": ("person.json", "surnames"),
    "city": ("address.json", "city"),
    "street": ("address.json", "street", "name"),
    "street_kind": ("address.json", "street", "suffix"),
    "state": ("address.json", "state", "name"),
    "country": ("address.json", "country", "name"),
    "company": ("finance.json", "company", "name"),
}
_POSTAL_CODE = ("address.json", "postal_code_fmt")
_PHONE = ("person.json", "telephone_fmt")


@cache
def vocabulary(kind: str, locale: str, gender: str | None = None) -> pa.Array:
    """The words of a kind, each once, sorted. Raises UnfitError where the locale has none, and
    ConfigError where the package is missing.
    """
    found = _dataset(locale, *_FOLDERS[kind])
    words = sorted(set(_words(found, gender)))
    if not words:
        raise UnfitError(f"locale {locale} has no {kind.replace('_', ' ')}s")
    return pa.array(words, pa.string())


@cache
def formats(kind: str, locale: str) -> tuple[str, ...]:
    """How postal codes (``postal_code``) and phone numbers (``phone``) are written: ``#`` stands
    for a digit, ``@`` for a letter.
    """
    found = _dataset(locale, *(_POSTAL_CODE if kind == "postal_code" else _PHONE))
    return (found,) if isinstance(found, str) else tuple(found)


def digest(*words: pa.Array) -> str:
    """The same for the same words."""
    hashed = hashlib.sha256()
    for array in words:
        for word in array.to_pylist():
            hashed.update(word.encode() + b"\0")
    return hashed.hexdigest()[:16]


def _words(found: Any, gender: str | None) -> list[str]:
    if isinstance(found, dict):
        if gender is not None and gender in found:
            return _words(found[gender], None)
        return [word for part in found.values() for word in _words(part, None)]
    return [word for word in found if isinstance(word, str)]


@cache
def _dataset(locale: str, file: str, *keys: str) -> Any:
    try:
        from mimesis.exceptions import LocaleError
        from mimesis.providers import Address, Finance, Person
    except ImportError:
        raise ConfigError(
            "names, addresses and companies need the package mimesis, which is not installed",
            remedy="pip install 'penstock[transform]'",
        ) from None
    provider = {"person.json": Person, "address.json": Address, "finance.json": Finance}[file]
    try:
        found: Any = provider(locale)._dataset
    except LocaleError:
        raise UnfitError(f"there is no locale {locale!r}; en, de, fr and es are some") from None
    for key in keys:
        found = found.get(key, []) if isinstance(found, dict) else found
    return found
