"""What every destination promises, as tests: each module has those of one matter."""

from __future__ import annotations

import pytest

from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.batches import BatchTests
from penstock.testing.contract.changes import ChangeTests
from penstock.testing.contract.copies import CopyTests
from penstock.testing.contract.deliveries import KEYLESS
from penstock.testing.contract.filters import FilterTests
from penstock.testing.contract.schema_changes import SchemaChangeTests
from penstock.testing.contract.steps import StepTests


class DestinationContract(
    BatchTests, ChangeTests, CopyTests, SchemaChangeTests, StepTests, FilterTests
):
    """All tests. A subclass whose name begins with Test, and a fixture ``adapter``, run them.

    The suite asks a destination for what its capabilities and its protocols claim. A test of
    something that it does not claim is skipped, and says what that is.
    """

    @pytest.fixture
    def builder(self, adapter: Adapter) -> ChangeBuilder:
        """Makes the changes that a test delivers."""
        return ChangeBuilder(leave_out=() if adapter.takes_keyless else KEYLESS)
