"""Transformers by the names that the pipeline file knows them by."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from penstock.config import entry_point
from penstock.model.errors import ConfigError
from penstock.transform.transformers.contract import Transformer

GROUP: Final = "penstock.transformers"
"""The entry points of transformers that other packages bring."""

_MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "constants": {
        "literal": "Constant",
        "null": "Null",
        "choice": "Choice",
        "boolean": "Boolean",
        "string": "String",
    },
    "masking": {"mask": "Mask", "redact": "Redact"},
    "people": {
        "first_name": "FirstName",
        "last_name": "LastName",
        "person_name": "FullName",
        "email": "Email",
        "phone_number": "PhoneNumber",
        "address": "Address",
        "city": "City",
        "state": "State",
        "country": "Country",
        "postal_code": "PostalCode",
        "company": "Company",
    },
    "numbers": {
        "integer": "Integer",
        "float": "Float",
        "noise": "Noise",
        "round": "Round",
        "bucket": "NumberRange",
    },
    "times": {
        "date": "Date",
        "timestamp": "Timestamp",
        "unix_timestamp": "UnixTimestamp",
        "shift": "Shift",
        "time_noise": "TimeNoise",
        "truncate_time": "TruncateTime",
    },
    "pseudonyms": {
        "hash": "Hash",
        "uuid": "Uuid",
        "integer_key": "IntegerKey",
        "token": "Token",
        "encrypt": "Encrypt",
    },
    "places": {"truncate_ip": "TruncateIp", "geo_noise": "GeoNoise"},
    "documents": {"json": "Json", "hstore": "Hstore", "array": "Array"},
    "templates": {"template": "Template", "cut": "CutOff"},
    "anonymizer": {"anonymizer": "Anonymizer"},
}
_SHIPPED = {
    name: (module, kind) for module, kinds in _MODULES.items() for name, kind in kinds.items()
}


def transformer_names() -> list[str]:
    """Those that are shipped, and those of other packages."""
    return sorted({*_SHIPPED, *entry_point.names(GROUP)})


def shipped_names() -> list[str]:
    return sorted(_SHIPPED)


def transformer_class(name: str) -> type[Transformer]:
    """The transformer of this name. Raises ConfigError where there is none."""
    if name in _SHIPPED:
        module, kind = _SHIPPED[name]
        found: type[Transformer] = getattr(
            import_module(f"penstock.transform.transformers.{module}"), kind
        )
        return found
    own = entry_point.find(GROUP, name)
    if own is None:
        raise ConfigError(
            f"transform: there is no transformer {name!r}",
            remedy=f"use one of: {', '.join(transformer_names())}",
        )
    if not (isinstance(own, type) and issubclass(own, Transformer)):
        raise ConfigError(
            f"transform: {name!r} of the entry points {GROUP} is no Transformer",
            remedy="let it subclass penstock.transform.transformers.contract.Transformer",
        )
    return own
