"""Drivers of lakes that die, and tables that change, for the tests of members of a family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.destination.contract import Destination
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.testing.contract.deliveries import ITEMS, definition


class DriverDiedError(Exception):
    pass


def dies_before(destination: Destination, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies once it has committed ``last`` tables, before the next or the control table."""
    assert isinstance(destination, StagedMergeDestination)
    apply, done = destination.apply, 0

    def dying(rows: MergedRows, at: Mark) -> Any:
        nonlocal done
        if done == last:
            raise DriverDiedError
        done += 1
        return apply(rows, at)

    def put(*_: object) -> None:
        raise DriverDiedError

    monkeypatch.setattr(destination, "apply", dying)
    monkeypatch.setattr(destination.ledger, "_put", put)


def items_with(*columns: tuple[int, str, TypeName, str | None], name: str) -> TableDefinition:
    """``items`` with these columns: number, name, type, and what older rows have there."""
    return replace(
        definition(ITEMS),
        name=name,
        columns=tuple(
            ColumnDefinition(number, column, kind, not_null=number == 1, missing=missing)
            for number, column, kind, missing in columns
        ),
    )
