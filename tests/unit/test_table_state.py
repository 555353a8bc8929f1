"""The state machine of tables, over every pair of states."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product

import pytest

from penstock.model.errors import StoreError
from penstock.model.table_state import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_ATTEMPTS,
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    ManualRetry,
    Ready,
    SyncDone,
    SyncWait,
    TableState,
    TimedRetry,
    retry_policy,
    state_from_json,
    state_to_json,
    transition,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
STATES: list[TableState] = [
    Init(),
    DataSync(),
    FinishedCopy(),
    SyncWait(),
    Catchup(0x1600000042),
    SyncDone(0x1600000042),
    Ready(),
    Errored("row 7 is too long", "make the column wider"),
]
COPIED = STATES[:7]
# Written out again on purpose: a change of the table in the code has to be meant.
ALLOWED = {
    *pairwise(state.phase for state in COPIED),
    ("init", "ready"),
    *((state.phase, "init") for state in STATES),
    *((state.phase, "errored") for state in STATES),
}


@pytest.mark.parametrize(
    ("old", "new"), list(product(STATES, STATES)), ids=lambda state: state.phase
)
def test_every_pair(old: TableState, new: TableState) -> None:
    if old == new or (old.phase, new.phase) in ALLOWED:
        assert transition(old, new) is new
    else:
        with pytest.raises(StoreError, match=f"in state {old.phase} cannot become {new.phase}"):
            transition(old, new)


@pytest.mark.parametrize("new", STATES, ids=lambda state: state.phase)
def test_a_new_table_begins_at_init(new: TableState) -> None:
    if new == Init():
        assert transition(None, new) == Init()
    else:
        with pytest.raises(StoreError, match=f"cannot become {new.phase}; it begins at init"):
            transition(None, new)


def test_the_goal_of_a_catch_up_does_not_move() -> None:
    with pytest.raises(StoreError, match="what may follow is init, sync_done, errored"):
        transition(Catchup(1), Catchup(2))
    with pytest.raises(StoreError, match="sync_done cannot become sync_done"):
        transition(SyncDone(1), SyncDone(2))


def test_an_error_may_follow_another() -> None:
    assert transition(Errored("first"), Errored("second")) == Errored("second")


def test_leaving_errored_says_why_it_failed_and_how() -> None:
    with pytest.raises(StoreError, match="row 7 is too long") as caught:
        transition(STATES[-1], Ready())
    assert "penstock tables retry" in caught.value.remedy


@pytest.mark.parametrize(
    "state", [*STATES, Errored("why", retry=TimedRetry(3, NOW))], ids=lambda state: state.phase
)
def test_json_and_back(state: TableState) -> None:
    assert state_from_json(json.loads(json.dumps(state_to_json(state)))) == state


def test_the_json_that_databases_hold() -> None:
    # Stored for years: renaming a key would lose what older versions wrote.
    assert state_to_json(Catchup(0x1600000042)) == {"phase": "catchup", "lsn": "16/42"}
    assert state_to_json(Errored("why", "do this", TimedRetry(3, NOW))) == {
        "phase": "errored",
        "reason": "why",
        "solution": "do this",
        "retry": {"policy": "timed", "attempt": 3, "next_at": "2026-01-02T03:04:05.000678+00:00"},
        "delivered": False,
    }
    assert state_to_json(Errored("why"))["retry"] == {"policy": "manual"}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"phase": "paused"},
        {"phase": ["ready"]},
        {"phase": "catchup"},
        {"phase": "catchup", "lsn": "x"},
        {"phase": "errored", "reason": "why"},
        {"phase": "errored", "reason": "why", "solution": "", "retry": {"policy": "never"}},
    ],
)
def test_unknown_json_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="not one that this version of Penstock knows"):
        state_from_json(value)


class TestRetryPolicy:
    def pause(self, attempt: int, jitter: float) -> timedelta:
        policy = retry_policy(attempt, NOW, lambda: jitter)
        assert isinstance(policy, TimedRetry)
        assert policy.attempt == attempt
        return policy.next_at - NOW

    def test_pauses_double_up_to_a_limit(self) -> None:
        pauses = [self.pause(attempt, 1.0) for attempt in range(1, MOST_ATTEMPTS + 1)]
        assert pauses[:3] == [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]
        assert pauses[-1] == LONGEST_PAUSE
        assert pauses == sorted(pauses)

    def test_chance_takes_up_to_half(self) -> None:
        assert self.pause(2, 0.0) == FIRST_PAUSE
        assert self.pause(2, 0.5) == FIRST_PAUSE * 1.5

    def test_real_jitter_stays_within(self) -> None:
        pauses = {retry_policy(1, NOW) for _ in range(50)}
        assert len(pauses) > 1
        for policy in pauses:
            assert isinstance(policy, TimedRetry)
            assert FIRST_PAUSE / 2 <= policy.next_at - NOW <= FIRST_PAUSE

    def test_then_a_person_decides(self) -> None:
        assert retry_policy(MOST_ATTEMPTS + 1, NOW) == ManualRetry()
