"""librdkafka's producer by its public C functions, without an object a message (ADR 18).

Settings, transactions and errors are as confluent_kafka has them; the library is the one that it
brings.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from penstock.destination.kafka.message_slots import SLOT_BYTES, Outgoing, Slots

_PRODUCER, _IN_QUEUE, _IN_FLIGHT = 0, 1, 2
_OK = 0
_FULL = KafkaError._QUEUE_FULL
_TEXT_BYTES = 512
_POINTER, _TEXT, _INT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t

_ON_DELIVERY = ctypes.CFUNCTYPE(None, _POINTER, ctypes.POINTER(ctypes.c_int), _POINTER)
_ON_ERROR = ctypes.CFUNCTYPE(None, _POINTER, _INT, _TEXT, _POINTER)

# Name, result, arguments.
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("rd_kafka_conf_new", _POINTER, ()),
    ("rd_kafka_conf_destroy", None, (_POINTER,)),
    ("rd_kafka_conf_set", _INT, (_POINTER, _TEXT, _TEXT, _POINTER, _SIZE)),
    ("rd_kafka_conf_set_dr_msg_cb", None, (_POINTER, _ON_DELIVERY)),
    ("rd_kafka_conf_set_error_cb", None, (_POINTER, _ON_ERROR)),
    ("rd_kafka_new", _POINTER, (_INT, _POINTER, _POINTER, _SIZE)),
    ("rd_kafka_destroy", None, (_POINTER,)),
    ("rd_kafka_topic_new", _POINTER, (_POINTER, _TEXT, _POINTER)),
    ("rd_kafka_topic_destroy", None, (_POINTER,)),
    ("rd_kafka_produceva", _POINTER, (_POINTER, _POINTER, _SIZE)),
    ("rd_kafka_poll", _INT, (_POINTER, _INT)),
    ("rd_kafka_flush", _INT, (_POINTER, _INT)),
    ("rd_kafka_outq_len", _INT, (_POINTER,)),
    ("rd_kafka_purge", _INT, (_POINTER, _INT)),
    ("rd_kafka_last_error", _INT, ()),
    ("rd_kafka_fatal_error", _INT, (_POINTER, _POINTER, _SIZE)),
    ("rd_kafka_init_transactions", _POINTER, (_POINTER, _INT)),
    ("rd_kafka_begin_transaction", _POINTER, (_POINTER,)),
    ("rd_kafka_commit_transaction", _POINTER, (_POINTER, _INT)),
    ("rd_kafka_error_code", _INT, (_POINTER,)),
    ("rd_kafka_error_string", _TEXT, (_POINTER,)),
    ("rd_kafka_error_is_fatal", _INT, (_POINTER,)),
    ("rd_kafka_error_is_retriable", _INT, (_POINTER,)),
    ("rd_kafka_error_txn_requires_abort", _INT, (_POINTER,)),
    ("rd_kafka_error_destroy", None, (_POINTER,)),
)


@cache
def _library() -> ctypes.CDLL:
    """Calls let other threads of Python run: they may wait."""
    return _declared(ctypes.CDLL(cimpl.__file__))


@cache
def _quick_library() -> ctypes.CDLL:
    """For calls that never wait, of which there are many."""
    return _declared(ctypes.PyDLL(cimpl.__file__))


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class NativeProducer:
    """A producer whose messages come as columns. One thread at a time.

    ``on_error`` hears what the client meets by itself; ``on_failure`` why a message did not arrive.
    Both are called by ``poll`` and ``flush``. Raises KafkaException where a setting is wrong.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
        on_failure: Callable[[KafkaError], None],
    ) -> None:
        self._topics: dict[str, int] = {}
        self._client: int | None = None
        # Kept as long as the client, which calls them.
        self._callbacks = (
            _ON_DELIVERY(lambda _client, error, _opaque: _tell(on_failure, error[0], None)),
            _ON_ERROR(lambda _client, code, text, _opaque: self._met(on_error, code, text)),
        )
        self._client = self._new(_configuration(settings, *self._callbacks))

    def produce(self, messages: Outgoing, first: int = 0) -> int:
        """Hand over messages from ``first`` on, and return where it ended: before the end where the
        buffer is full. Never waits. Raises KafkaException.
        """
        if first == len(messages):
            return first
        client, produce = self._open(), _quick_library().rd_kafka_produceva
        slots = Slots(messages, [self._topic(topic) for topic in messages.topics])
        count, step = slots.a_message, slots.a_message * SLOT_BYTES
        while first < len(messages):
            addresses = slots.of(first)
            for address in range(addresses.start, addresses.stop, step):
                if error := produce(client, address, count):
                    found = _taken(error)
                    if found.code() == _FULL:
                        return first
                    raise KafkaException(found)
                first += 1
        return first

    def poll(self, seconds: float) -> None:
        _library().rd_kafka_poll(self._open(), _millis(seconds))

    def flush(self, seconds: float) -> int:
        """Wait until all has arrived or failed; how many messages are still under way."""
        _library().rd_kafka_flush(self._open(), _millis(seconds))
        return int(_library().rd_kafka_outq_len(self._open()))

    def init_transactions(self, seconds: float) -> None:
        _expect_none(_library().rd_kafka_init_transactions(self._open(), _millis(seconds)))

    def begin_transaction(self) -> None:
        _expect_none(_library().rd_kafka_begin_transaction(self._open()))

    def commit_transaction(self, seconds: float) -> None:
        _expect_none(_library().rd_kafka_commit_transaction(self._open(), _millis(seconds)))

    def close(self) -> None:
        """End it. What is not sent yet is not sent; nobody hears of it."""
        client, self._client = self._client, None
        if client is None:
            return
        library = _library()
        library.rd_kafka_purge(client, _IN_QUEUE | _IN_FLIGHT)
        for topic in self._topics.values():
            library.rd_kafka_topic_destroy(topic)
        library.rd_kafka_destroy(client)

    def __del__(self) -> None:
        # At the interpreter's end nobody waits for the library's threads.
        if not sys.is_finalizing():
            self.close()

    def _open(self) -> int:
        if self._client is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "the producer was closed"))
        return self._client

    def _new(self, configuration: int) -> int:
        reason = ctypes.create_string_buffer(_TEXT_BYTES)
        client = _library().rd_kafka_new(_PRODUCER, configuration, reason, _TEXT_BYTES)
        if not client:
            _library().rd_kafka_conf_destroy(configuration)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _shown(reason.value)))
        return int(client)

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            topic = _library().rd_kafka_topic_new(self._open(), name.encode(), None)
            if not topic:
                raise KafkaException(KafkaError(_library().rd_kafka_last_error()))
            self._topics[name] = topic
        return self._topics[name]

    def _met(self, on_error: Callable[[KafkaError], None], code: int, text: bytes) -> None:
        if code == KafkaError._FATAL and self._client is not None:
            reason = ctypes.create_string_buffer(_TEXT_BYTES)
            code = _library().rd_kafka_fatal_error(self._client, reason, _TEXT_BYTES)
            text = reason.value
        _tell(on_error, code, text)


def _configuration(settings: Mapping[str, Any], on_delivery: Any, on_error: Any) -> int:
    library = _library()
    configuration = library.rd_kafka_conf_new()
    reason = ctypes.create_string_buffer(_TEXT_BYTES)
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if library.rd_kafka_conf_set(
            configuration, name.encode(), text.encode(), reason, _TEXT_BYTES
        ):
            library.rd_kafka_conf_destroy(configuration)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _shown(reason.value)))
    library.rd_kafka_conf_set_dr_msg_cb(configuration, on_delivery)
    library.rd_kafka_conf_set_error_cb(configuration, on_error)
    return int(configuration)


def _tell(whom: Callable[[KafkaError], None], code: int, text: bytes | None) -> None:
    if code != _OK:
        whom(KafkaError(code) if text is None else KafkaError(code, _shown(text)))


def _expect_none(error: int | None) -> None:
    if error:
        raise KafkaException(_taken(error))


def _taken(error: int) -> KafkaError:
    """An error of librdkafka's as an object; the error itself is let go."""
    library = _library()
    try:
        return KafkaError(
            library.rd_kafka_error_code(error),
            _shown(library.rd_kafka_error_string(error)),
            bool(library.rd_kafka_error_is_fatal(error)),
            bool(library.rd_kafka_error_is_retriable(error)),
            bool(library.rd_kafka_error_txn_requires_abort(error)),
        )
    finally:
        library.rd_kafka_error_destroy(error)


def _millis(seconds: float) -> int:
    return int(seconds * 1000)


def _shown(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")
