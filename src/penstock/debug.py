"""Whether a person asked for all that there is to know of an error."""

from __future__ import annotations

import os

DEBUG = "PENSTOCK_DEBUG"
"""In the environment, so that processes which a command starts know it, too."""


def is_debug() -> bool:
    """Whether `--debug` was given, or PENSTOCK_DEBUG=1."""
    return os.environ.get(DEBUG) == "1"
