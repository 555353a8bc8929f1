"""The library that reads and writes Delta tables."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.model.errors import DestinationError


def delta_rs() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError as error:
        raise DestinationError(
            "destination delta: delta-rs is not installed",
            remedy="install it: pip install 'penstock[delta]'",
        ) from error
