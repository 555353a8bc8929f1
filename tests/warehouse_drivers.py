"""Drivers of warehouses that die or are replaced, for the tests of members of the family."""

from __future__ import annotations

import pytest

from penstock import failpoints
from penstock.decode.changes import ChangeSet
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.model.errors import Fenced
from penstock.model.watermarks import Watermarks
from penstock.testing import Adapter
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import (
    assert_delivered,
    deliver,
    insert_items,
    opened,
    reference,
)
from tests.crash.passed_failpoints import passed_failpoints


def expect_none_lost_at_failpoints(
    adapter: Adapter, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit nothing is kept, after it everything; the next driver goes on from there.
    A process of its own would not reach the stand-in: the driver ends by an error.
    """
    builder, written = ChangeBuilder(), list[ChangeSet]()
    opened(adapter).close()
    for point in passed_failpoints(name):
        if not point.startswith(f"{name}."):
            continue
        written.append(insert_items(builder, 10 * len(written), 3))
        monkeypatch.setitem(failpoints._points, point, ("error", 1))
        with pytest.raises(RuntimeError, match=point):
            deliver(opened(adapter), builder.frontier, written[-1:])
        assert point not in failpoints._points  # it fired
        destination = opened(adapter)
        at = destination.committed()
        is_kept = at is not None and at.frontier == builder.frontier
        assert is_kept == (point == f"{name}.committed")
        if not is_kept:
            deliver(destination, builder.frontier, written[-1:])
        assert_delivered(adapter, reference(*written))


def expect_stale_driver_refused(adapter: Adapter) -> None:
    """Another one takes over between what tasks of the first wrote and its commit."""
    stale, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    receipt = stale.writer().write([changes])
    current = opened(adapter)
    # By the number alone: that its files are gone, too, is another matter.
    assert isinstance(stale, WarehouseDestination)
    with pytest.raises(Fenced, match="taken over"):
        stale.ledger.write(stale._driver, {"a note": "of a stale driver"})
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([receipt], Watermarks(builder.frontier))
    deliver(current, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))
