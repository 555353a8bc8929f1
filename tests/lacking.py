"""What a machine lacks that a test needs: the test is skipped, unless it was to run."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

STRICT = "PENSTOCK_TEST_STRICT"
"""Set where every guarantee has to be looked at (.ci/run): what is lacking is a failure there."""


def lacks(reason: str) -> NoReturn:
    """End the test: skipped, or failed where STRICT is set, with the reason."""
    if os.environ.get(STRICT):
        pytest.fail(f"{reason} ({STRICT} is set: nothing is skipped)", pytrace=False)
    pytest.skip(reason)
