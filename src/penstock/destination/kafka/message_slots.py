"""Messages as columns, and as what librdkafka's ``rd_kafka_produceva`` reads: tagged slots of
fixed size, several for each message, which hold addresses into the columns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.row_values import Ints

# rd_kafka_vu_t: a tag, and a union of 64 bytes of which the widest use is a header's.
SLOT_BYTES = 72
_SLOT = np.dtype(
    {
        "names": ["tag", "first", "second", "third"],
        "formats": ["i4", "u8", "u8", "u8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": SLOT_BYTES,
    }
)
# rd_kafka_vtype_t.
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 2, 3, 4, 5, 7, 9
_COPY = 2
"""RD_KAFKA_MSG_F_COPY: the columns may go when a message is handed over."""
_FIXED = (_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS)
_PIECE = 2048
"""So many messages at a time: their slots stay in the processor's cache."""

_Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Header:
    """A header, and which of its ``values`` each message has; without ``of`` one each. A message
    whose value is null does not have the header.
    """

    name: str
    values: pa.Array
    of: Ints | None = None


@dataclass(frozen=True)
class Outgoing:
    """What a producer is given, one entry a message in each column."""

    topics: Sequence[str]
    topic: Ints
    """Which of ``topics``."""
    partition: Ints
    key: pa.Array
    value: pa.Array
    headers: Sequence[Header] = ()

    def __len__(self) -> int:
        return len(self.topic)

    @classmethod
    def single(cls, topic: str, partition: int, key: bytes, value: bytes) -> Outgoing:
        return cls(
            [topic],
            np.zeros(1, np.int64),
            np.array([partition], np.int64),
            pa.array([key], pa.large_binary()),
            pa.array([value], pa.large_binary()),
        )


class Slots:
    """The slots of messages, made for a piece of them at a time. Addresses hold until the next
    piece is asked for, and as long as this object.

    ``topics`` are librdkafka's handles of ``messages.topics``.
    """

    def __init__(self, messages: Outgoing, topics: Sequence[int]) -> None:
        self.a_message = len(_FIXED) + len(messages.headers)
        self._count = len(messages)
        self._topic = np.array(topics, np.uint64)[messages.topic]
        self._partition = messages.partition.astype(np.int64).view(np.uint64)
        self._value = _Texts(messages.value)
        self._key = _Texts(messages.key)
        self._names = [ctypes.create_string_buffer(h.name.encode()) for h in messages.headers]
        self._headers = [(_Texts(header.values), header.of) for header in messages.headers]
        self._slots = np.zeros((min(_PIECE, self._count), self.a_message), _SLOT)
        self._slots["tag"][:, : len(_FIXED)] = _FIXED
        self._slots["first"][:, _FIXED.index(_FLAGS)] = _COPY

    def of(self, first: int) -> range:
        """The addresses of the slots from message ``first`` on, for a piece."""
        rows = slice(first, min(first + _PIECE, self._count))
        slots = self._slots[: rows.stop - rows.start]
        slots["first"][:, 0] = self._topic[rows]
        slots["first"][:, 1] = self._partition[rows]
        for place, texts in ((2, self._value), (3, self._key)):
            slots["first"][:, place] = texts.address[rows]
            slots["second"][:, place] = texts.length[rows]
        for number, (texts, of) in enumerate(self._headers):
            place, which = len(_FIXED) + number, rows if of is None else of[rows]
            address = texts.address[which]
            slots["tag"][:, place] = _HEADER
            slots["first"][:, place] = ctypes.addressof(self._names[number])
            slots["second"][:, place] = address
            slots["third"][:, place] = texts.length[which]
            if not address.all():
                # No header: flags, which are there already, stand in for it.
                slots["tag"][address == 0, place] = _FLAGS
                slots["first"][address == 0, place] = _COPY
        start = self._slots.ctypes.data
        return range(start, start + slots.nbytes)


class _Texts:
    """Where the values of a column lie; the address of null is 0."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values = values.cast(pa.large_binary())
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
        # An empty text has an address, too, if nobody's.
        base = data.address if data is not None and data.address else offsets.address
        self.address: _Addresses = bounds[:-1].astype(np.uint64) + np.uint64(base)
        self.length: _Addresses = np.diff(bounds).astype(np.uint64)
        if values.null_count:
            is_null = np.asarray(values.is_null())
            self.address[is_null] = 0
            self.length[is_null] = 0
