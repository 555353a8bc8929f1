"""JSON that is read and written again without a change: numbers keep their digits."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def read_exactly(text: str | bytes) -> Any:
    """Numbers with a fraction or an exponent become Decimals."""
    return json.loads(text, parse_float=Decimal)


def write_exactly(value: Any) -> str:
    """What ``read_exactly`` gave, as text."""
    if isinstance(value, dict):
        members = (f"{_text(key)}:{write_exactly(member)}" for key, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write_exactly, value)) + "]"
    return str(value) if isinstance(value, Decimal) else _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
