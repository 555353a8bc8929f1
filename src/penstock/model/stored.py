"""Dataclasses that are stored as JSON: an object with a key for each field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Stored:
    """Base of such dataclasses. Those inside of one need not be of it."""

    def to_json(self) -> dict[str, Any]:
        """What ``json.dumps`` takes."""
        found: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json")
        return found

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """What ``to_json`` gave, by now or in an earlier version: fields that it did not have take
        their defaults. Raises pydantic's ValidationError for anything else.
        """
        found: Self = _adapter(cls).validate_python(value)
        return found


def _adapter(of: type[Any]) -> TypeAdapter[Any]:
    if of not in _adapters:
        # Late: most who know definitions never read or store any.
        from pydantic import TypeAdapter

        _adapters[of] = TypeAdapter(of)
    return _adapters[of]


_adapters: dict[type[Any], TypeAdapter[Any]] = {}
