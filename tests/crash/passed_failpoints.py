"""Which failpoints a pipeline passes, by its destination."""

from __future__ import annotations

from penstock.destination.registry import destination_class
from penstock.failpoints import PLACES


def passed_failpoints(destination: str, *, copies: bool = False) -> tuple[str, ...]:
    """Those of every pipeline, and the destination's own; with ``copies`` also those that only a
    pipeline passes that copies tables. Not those of whole schemas.
    """
    own = destination_class(destination).failpoints
    return tuple(
        name
        for name in (*PLACES, *own)
        if not is_of_schema(name) and (copies or not is_of_copies(name))
    )


def copy_failpoints(destination: str) -> tuple[str, ...]:
    """Those that only a pipeline passes that copies tables into this destination."""
    return tuple(filter(is_of_copies, passed_failpoints(destination, copies=True)))


def is_of_copies(name: str) -> bool:
    room, _, place = name.partition(".")
    return room == "copy" or place.startswith("copy_")


def is_of_schema(name: str) -> bool:
    """Whether only a pipeline passes it that takes the whole schema (test_full_schema.py)."""
    return name.partition(".")[2].startswith("schema_")
