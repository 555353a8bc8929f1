"""Names of topics and streams, made from patterns in the pipeline file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from penstock.model.errors import DestinationError

_OF_TABLES = ("schema", "table")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class NameRule:
    """What a queue's names are called, and how long they may be."""

    destination: str
    kind: str
    longest: int

    @property
    def of_tables(self) -> AfterValidator:
        """Refuses texts of the pipeline file that are no pattern for what belongs to tables."""
        return AfterValidator(partial(self._pattern, places=_OF_TABLES))

    @property
    def of_pipeline(self) -> AfterValidator:
        """The same for what belongs to no single table."""
        return AfterValidator(partial(self._pattern, places=()))

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

    def _pattern(self, value: str, places: Sequence[str]) -> str:
        try:
            value.format(**dict.fromkeys(("pipeline", *places), "x"))
        except (LookupError, AttributeError, TypeError, ValueError):
            allowed = "{pipeline} stands for the pipeline's name; it is of no single table"
            if places:
                allowed = "{pipeline}, {schema} and {table} stand for what they say"
            message = f"Input should be a {self.kind}'s name, in which {allowed}"
            raise PydanticCustomError(self.kind, "{message}", {"message": message}) from None
        return value


def names_tables(pattern: str) -> bool:
    """Whether a pattern gives a name only where a table is known."""
    return any(f"{{{place}" in pattern for place in _OF_TABLES)
