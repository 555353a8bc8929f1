"""Calls of PutRecords until every record is there."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError

from penstock.backoff import Backoff
from penstock.destination.kinesis.calls import Pending
from penstock.destination.kinesis.failures import failure, unavailable
from penstock.destination.kinesis.records import Records
from penstock.failpoints import failpoint
from penstock.model.errors import DestinationUnavailable

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class KinesisDelivery:
    """Sends through one client. What failed is sent again after a pause, which grows while nothing
    gets through. Raises DestinationUnavailable where that was so for ``timeout`` seconds.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self.resent = 0

    def send(self, stream: str, records: Records) -> None:
        """Returns when all are there."""
        pending = Pending(records.group, records.sizes)
        data = records.data.cast(pa.large_binary())
        deadline = time.monotonic() + self._timeout
        while pending:
            rows = pending.next_call()
            reasons = self._call(stream, records.key.take(rows), data.take(rows))
            arrived = np.array([not reason for reason in reasons])
            pending.called(arrived)
            if arrived.any():
                self._backoff.start_over()
                deadline = time.monotonic() + self._timeout
            if not arrived.all():
                self.resent += int(np.count_nonzero(~arrived))
                self._pause(stream, next(filter(None, reasons)), deadline)

    def _call(self, stream: str, keys: pa.Array, data: pa.Array) -> list[str]:
        """Why each record is not there; empty for those that are."""
        entries = [
            {"PartitionKey": key, "Data": value}
            for key, value in zip(keys.to_pylist(), data.to_pylist(), strict=True)
        ]
        try:
            answer = self._client.put_records(StreamName=stream, Records=entries)
        except (ClientError, BotoCoreError) as error:
            reason = failure(error, f"sending to stream {stream}")
            if not isinstance(reason, DestinationUnavailable):
                raise reason from None
            # Some may have arrived all the same. They come again, before any later one.
            return [reason.message] * len(entries)
        failpoint("kinesis.called")
        if not answer["FailedRecordCount"]:
            return [""] * len(entries)
        return [
            f"{record['ErrorCode']}: {record.get('ErrorMessage', '')}"
            if record.get("ErrorCode")
            else ""
            for record in answer["Records"]
        ]

    def _pause(self, stream: str, reason: str, deadline: float) -> None:
        pause = self._backoff.next_pause()
        if time.monotonic() + pause > deadline:
            raise unavailable(
                f"destination kinesis: for {self._timeout:g} s nothing got through to stream "
                f"{stream}; at last: {reason}"
            )
        time.sleep(pause)
