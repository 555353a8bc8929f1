"""Whether a slot may be used: judged from its state alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model.errors import SlotError
from penstock.source.postgres.subscription.slot import SlotState, judge_slot

GOOD = SlotState(
    name="penstock_shop_0123abcd",
    plugin="pgoutput",
    database="shop",
    connected_database="shop",
    active=False,
    active_pid=None,
    wal_status="reserved",
    safe_wal_size=None,
    confirmed_flush=0x100,
    restart_lsn=0x80,
    invalidation_reason=None,
)


@pytest.mark.parametrize("start", [0x100, 0x101, 0xFFFF_FFFF_FFFF])
def test_a_slot_at_or_before_our_position_is_good(start: int) -> None:
    judge_slot(GOOD, GOOD.name, expected_start=start)


@pytest.mark.parametrize("status", ["extended", "unreserved"])
def test_a_slot_in_danger_still_has_everything(status: str) -> None:
    judge_slot(replace(GOOD, wal_status=status), GOOD.name, expected_start=0x100)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, "does not exist"),
        (replace(GOOD, wal_status="lost"), "is lost"),
        (replace(GOOD, invalidation_reason="idle_timeout"), r"is lost \(idle_timeout\)"),
        (replace(GOOD, confirmed_flush=0x101), "changes between 0/100 and 0/101 are gone"),
        (replace(GOOD, plugin="test_decoding"), "is not ours: it uses plugin 'test_decoding'"),
        (replace(GOOD, database="other"), "in database 'other'"),
        (replace(GOOD, plugin=None, database=None), "is not ours"),
    ],
)
def test_refusals_name_slot_cause_and_remedy(state: SlotState | None, expected: str) -> None:
    with pytest.raises(SlotError, match=expected) as caught:
        judge_slot(state, GOOD.name, expected_start=0x100)
    assert GOOD.name in caught.value.message
    assert caught.value.remedy
