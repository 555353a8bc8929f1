"""The streams that a pipeline writes to, and making them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from penstock.cadence import paced
from penstock.destination.kinesis.clients import admin_client
from penstock.destination.kinesis.failures import failure, unavailable
from penstock.destination.kinesis.options import KinesisOptions
from penstock.model.errors import DestinationError

_LOOK_SECONDS = paced(0.5)
_LONGEST_SECONDS = 300.0
_WRITABLE = ("ACTIVE", "UPDATING")


class Streams:
    """Streams at the endpoint."""

    def __init__(self, options: KinesisOptions) -> None:
        self._wanted = options.streams
        self._client = admin_client(options)

    def close(self) -> None:
        self._client.close()

    def check(self, names: Sequence[str]) -> None:
        """Raise DestinationError where one could not be written to, or the endpoint not asked."""
        if not names:
            self._ask("listing streams", self._client.list_streams, Limit=1)
        self._missing(names)

    def make(self, names: Sequence[str]) -> None:
        """Let these streams be there, ready to be written to."""
        for name in self._missing(names):
            self._create(name)
        for name in names:
            self._wait(name)

    def _missing(self, names: Sequence[str]) -> list[str]:
        """Those that are to be made."""
        found = [name for name in names if self._status(name) is None]
        if found and not self._wanted.create:
            raise DestinationError(
                f"destination kinesis: stream {found[0]} does not exist",
                remedy="create it, or let Penstock do so with destination.streams.create: true",
            )
        return found

    def _status(self, name: str) -> str | None:
        """None where there is no such stream."""
        found = self._ask(
            f"asking for stream {name}",
            self._client.describe_stream_summary,
            expected="ResourceNotFoundException",
            StreamName=name,
        )
        if found is None:
            return None
        summary = found["StreamDescriptionSummary"]
        if summary.get("RecordDistributionStrategy") == "AUTO":
            raise DestinationError(
                f"destination kinesis: stream {name} pays no heed to partition keys: no order "
                "would be kept",
                remedy="let its record distribution strategy be USER_PARTITION_KEY, or set "
                "destination.stream to another one",
            )
        status: str = summary["StreamStatus"]
        return status

    def _create(self, name: str) -> None:
        shards = self._wanted.shards
        how: dict[str, Any] = (
            {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
            if shards is None
            else {"ShardCount": shards}
        )
        # Somebody else may be faster.
        self._ask(
            f"creating stream {name}",
            self._client.create_stream,
            expected="ResourceInUseException",
            StreamName=name,
            **how,
        )

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while (status := self._status(name)) not in _WRITABLE:
            if time.monotonic() > deadline:
                raise unavailable(
                    f"destination kinesis: stream {name} is {status} since "
                    f"{_LONGEST_SECONDS:g} s and cannot be written to"
                )
            time.sleep(_LOOK_SECONDS)

    def _ask(
        self, doing: str, call: Callable[..., Any], *, expected: str = "", **arguments: object
    ) -> Any:
        """What a call answers; None where it fails with the code that is expected."""
        try:
            return call(**arguments)
        except ClientError as error:
            if expected and error.response["Error"].get("Code") == expected:
                return None
            raise failure(error, doing) from None
        except BotoCoreError as error:
            raise failure(error, doing) from None
