"""Sizes and durations as people write them in the pipeline file."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")

_BYTES_PER_UNIT = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SECONDS_PER_UNIT = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(value: object) -> int:
    """Bytes from ``64MiB``, ``1.5GB`` or a plain number; raises ValueError for anything else."""
    amount, unit = _split(value)
    if unit not in _BYTES_PER_UNIT:
        raise ValueError(f"{unit!r} is not a unit of size")
    return int(amount * _BYTES_PER_UNIT[unit])


def parse_duration(value: object) -> float:
    """Seconds from ``500ms``, ``10s``, ``1m`` or a plain number; raises ValueError otherwise."""
    amount, unit = _split(value)
    if unit not in _SECONDS_PER_UNIT:
        raise ValueError(f"{unit!r} is not a unit of time")
    return float(amount) * _SECONDS_PER_UNIT[unit]


def _split(value: object) -> tuple[float, str]:
    # bool is an int in Python, and `yes` is a bool in YAML: neither is a quantity.
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{value} is not a quantity")
        return value, ""
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a quantity")
    number, unit = match.groups()
    return (float(number) if "." in number else int(number)), unit


def _size(value: object) -> int:
    try:
        return parse_size(value)
    except ValueError:
        raise PydanticCustomError(
            "size", "Input should be a size such as 64MiB, or a number of bytes"
        ) from None


def _duration(value: object) -> float:
    try:
        return parse_duration(value)
    except ValueError:
        raise PydanticCustomError(
            "duration", "Input should be a duration such as 500ms, 10s or 1m, or seconds"
        ) from None


Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
DurationOrZero = Annotated[float, BeforeValidator(_duration)]
Duration = Annotated[DurationOrZero, Field(gt=0)]
