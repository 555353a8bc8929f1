"""Calls of PutRecords: within the limits, and in order per key whatever fails."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from botocore.exceptions import ReadTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.destination.kinesis import delivery
from penstock.destination.kinesis.calls import MOST_BYTES, MOST_RECORDS, Pending
from penstock.destination.kinesis.delivery import KinesisDelivery
from penstock.destination.kinesis.records import Records
from penstock.model.errors import DestinationError, DestinationUnavailable
from tests.unit.test_kinesis_options import client_error


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_FIRST_PAUSE", 1e-6)
    monkeypatch.setattr(delivery, "_LONGEST_PAUSE", 1e-5)


class FakeStream:
    """Takes records as Kinesis does, and lets some fail: a server cannot be made to fail so often,
    so fast.
    """

    def __init__(self, seed: int, *, records: float = 0.0, calls: float = 0.0) -> None:
        self._random = random.Random(seed)
        self._records = records
        self._calls = calls
        self.stored: list[tuple[str, bytes]] = []
        self.sizes: list[int] = []

    def put_records(self, *, StreamName: str, Records: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        self.sizes.append(len(Records))
        assert len(Records) <= MOST_RECORDS
        assert sum(len(r["PartitionKey"]) + len(r["Data"]) for r in Records) <= MOST_BYTES
        if self._random.random() < self._calls:
            raise client_error("ProvisionedThroughputExceededException")
        told: list[dict[str, str]] = []
        for record in Records:
            if self._random.random() < self._records:
                told.append({"ErrorCode": "InternalFailure", "ErrorMessage": "no"})
            else:
                self.stored.append((record["PartitionKey"], record["Data"]))
                told.append({"SequenceNumber": str(len(self.stored))})
        if self._random.random() < self._calls:
            raise ReadTimeoutError(endpoint_url=StreamName)
        failed = sum("ErrorCode" in record for record in told)
        return {"FailedRecordCount": failed, "Records": told}


def some_records(keys: list[int]) -> Records:
    """Each tells its number."""
    return Records(
        pa.array([f"k{key}" for key in keys], pa.large_string()),
        pa.array([str(number) for number in range(len(keys))], pa.large_string()),
        np.array(keys, np.uint64),
    )


def by_key(stored: list[tuple[str, bytes]]) -> dict[str, list[int]]:
    """Without those that came again."""
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for key, data in stored:
        found[key].setdefault(int(data))
    return {key: list(numbers) for key, numbers in found.items()}


@given(
    st.lists(st.integers(0, 40), max_size=300),
    st.integers(0, 2**32),
    st.floats(0, 0.9),
    st.floats(0, 0.5),
)
@settings(deadline=None)
def test_order_is_kept_and_nothing_lost_whatever_fails(
    keys: list[int], seed: int, records: float, calls: float
) -> None:
    stream = FakeStream(seed, records=records, calls=calls)
    delivery = KinesisDelivery(stream, 600.0)
    delivery.send("s", some_records(keys))
    wanted: dict[str, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        wanted[f"k{key}"].append(number)
    assert by_key(stream.stored) == wanted
    if not calls:
        # What is known to be there is not sent again.
        assert len(stream.stored) == len(keys)
        assert sum(stream.sizes) == len(keys) + delivery.resent


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 2**20)), max_size=2000),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=50)
def test_calls_keep_to_the_limits(rows: list[tuple[int, int]], chance: random.Random) -> None:
    groups = np.array([group for group, _ in rows], np.uint64)
    sizes = np.array([size for _, size in rows], np.int64)
    pending = Pending(groups, sizes)
    came: Counter[int] = Counter()
    last: dict[int, int] = {}
    while pending:
        call = pending.next_call()
        assert 0 < len(call) <= MOST_RECORDS
        assert sizes[call].sum() <= MOST_BYTES
        assert len(np.unique(groups[call])) == len(call), "two of a group in one call"
        assert (np.diff(call) > 0).all()
        arrived = np.array([chance.random() < 0.7 for _ in call])
        pending.called(arrived)
        for row in call[arrived].tolist():
            came[row] += 1
            assert last.get(rows[row][0], -1) < row
            last[rows[row][0]] = row
    assert came == Counter(range(len(rows)))


def test_calls_are_as_large_as_they_may_be() -> None:
    stream = FakeStream(0)
    KinesisDelivery(stream, 60.0).send("s", some_records(list(range(1200))))
    assert stream.sizes == [500, 500, 200]


def test_a_call_that_lasts_to_fail_is_not_tried_again() -> None:
    class Denying:
        calls = 0

        def put_records(self, **_: object) -> None:
            self.calls += 1
            raise client_error("AccessDeniedException")

    denying = Denying()
    with pytest.raises(DestinationError, match="sending to stream s failed") as error:
        KinesisDelivery(denying, 60.0).send("s", some_records([1, 2]))
    assert not isinstance(error.value, DestinationUnavailable)
    assert denying.calls == 1


def test_after_a_while_without_progress_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

    monkeypatch.setattr(delivery, "time", Clock)
    monkeypatch.setattr(delivery, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(delivery, "_LONGEST_PAUSE", 5.0)
    stream = FakeStream(0, records=1.0)
    with pytest.raises(DestinationUnavailable, match=r"for 60 s nothing got through.*InternalFai"):
        KinesisDelivery(stream, 60.0).send("s", some_records([1, 2]))
    # The pauses grow.
    assert 10 < len(stream.sizes) < 60
    assert 50 < now < 60
