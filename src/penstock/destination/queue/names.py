"""Names of topics and streams, made from patterns in the pipeline file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from penstock.errors import DestinationError

_PLACES = ("pipeline", "schema", "table")
_OF_TABLES = ("{schema}", "{table}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class NameRule:
    """What a queue's names are called, and how long they may be."""

    destination: str
    kind: str
    longest: int

    @property
    def validator(self) -> AfterValidator:
        """Refuses texts of the pipeline file that are no pattern."""
        return AfterValidator(self._pattern)

    def name(self, pattern: str, pipeline: str, schema: str = "", table: str = "") -> str:
        """The name that a pattern means. Characters that none can have become ``_``."""
        name = _ILLEGAL.sub("_", pattern.format(pipeline=pipeline, schema=schema, table=table))
        if not name or name in (".", "..") or len(name) > self.longest:
            raise DestinationError(
                f"destination {self.destination}: {pattern!r} gives the {self.kind} {name[:80]!r} "
                f"for table {schema}.{table}, which is no legal name: 1 to {self.longest} "
                "characters",
                remedy=f"set destination.{self.kind} to a pattern that gives shorter names",
            )
        return name

    def _pattern(self, value: str) -> str:
        try:
            value.format(**dict.fromkeys(_PLACES, "x"))
        except (KeyError, IndexError, ValueError):
            raise PydanticCustomError(
                self.kind,
                f"Input should be a {self.kind}'s name, in which {{pipeline}}, {{schema}} and "
                "{table} stand for what they say",
            ) from None
        return value


def names_tables(pattern: str) -> bool:
    """Whether a pattern gives a name only where a table is known."""
    return any(place in pattern for place in _OF_TABLES)
