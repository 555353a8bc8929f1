"""The contract suite for destinations, for packages that have one of their own.

A package writes an Adapter, subclasses DestinationContract in a test file, and gives it one fixture
named ``adapter``. docs/your_own_destination.md shows a whole package. Needs pytest, which the extra
``penstock[testing]`` brings.
"""

import pytest

# Before these are imported: what fails in them is then shown as in any test file.
pytest.register_assert_rewrite(
    "penstock.testing.contract", "penstock.testing.json_lines", "penstock.testing.merge_model"
)

from penstock.destination.memory import MemoryChange, Row, TableName  # noqa: E402
from penstock.testing.adapter import Adapter  # noqa: E402
from penstock.testing.contract import DestinationContract  # noqa: E402
from penstock.testing.json_lines import (  # noqa: E402
    change_from_json,
    in_commit_order,
    parse_line,
    parse_lines,
)
from penstock.testing.merge_model import FrozenRow, frozen  # noqa: E402

__all__ = [
    "Adapter",
    "DestinationContract",
    "FrozenRow",
    "MemoryChange",
    "Row",
    "TableName",
    "change_from_json",
    "frozen",
    "in_commit_order",
    "parse_line",
    "parse_lines",
]
