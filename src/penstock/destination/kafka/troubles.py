"""Why a client has no connection. Its calls say no more than that time ran out."""

from __future__ import annotations

from confluent_kafka import KafkaError

# What says nothing of the cause.
_VAGUE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
    }
)


class Troubles:
    """What a client met by itself: its ``error_cb``."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        # That a connection was refused tells less than why another was given up.
        if self.last is None or self.last.code() in _VAGUE or error.code() not in _VAGUE:
            self.last = error

    def forget(self) -> None:
        """All is well."""
        self.last = None

    def behind(self, error: KafkaError) -> KafkaError | None:
        """What stands behind an error that does not say it, as far as it is known."""
        return self.last if error.code() in _VAGUE else None
