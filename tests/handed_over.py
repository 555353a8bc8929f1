"""What librdkafka reads of messages that it is given: their slots, as it defines them."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from penstock.destination.kafka.message_slots import SLOT_BYTES, Outgoing, Slots


class _Memory(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
    )


class _Union(ctypes.Union):
    _fields_ = (
        ("number", ctypes.c_int32),
        ("pointer", ctypes.c_void_p),
        ("memory", _Memory),
        ("header", _Header),
        ("_pad", ctypes.c_char * 64),
    )


class _Slot(ctypes.Structure):
    """rd_kafka_vu_t of rdkafka.h."""

    _fields_ = (("tag", ctypes.c_int), ("u", _Union))


class HandedOver(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def handed_over(messages: Outgoing) -> list[HandedOver]:
    """Each message as its slots say it."""
    assert ctypes.sizeof(_Slot) == SLOT_BYTES
    slots = Slots(messages, range(1, len(messages.topics) + 1))
    found: list[HandedOver] = []
    step = slots.a_message * SLOT_BYTES
    while len(found) < len(messages):
        addresses = slots.of(len(found))
        found += [
            _message(messages, (_Slot * slots.a_message).from_address(address))
            for address in range(addresses.start, addresses.stop, step)
        ]
    return found


def _message(messages: Outgoing, slots: ctypes.Array[_Slot]) -> HandedOver:
    by_tag = {slot.tag: slot.u for slot in slots}
    # RD_KAFKA_VTYPE_RKT, _PARTITION, _VALUE, _KEY, _MSGFLAGS, _HEADER
    assert by_tag[7].number == 2
    headers = [slot.u.header for slot in slots if slot.tag == 9]
    return HandedOver(
        messages.topics[by_tag[2].pointer - 1],
        by_tag[3].number,
        _text(by_tag[5].memory.address, by_tag[5].memory.size),
        _text(by_tag[4].memory.address, by_tag[4].memory.size),
        {h.name.decode(): _text(h.value, h.size) or b"" for h in headers},
    )


def _text(address: int | None, size: int) -> bytes | None:
    return None if address is None else ctypes.string_at(address, size)
