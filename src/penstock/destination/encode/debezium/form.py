"""How the values of one Postgres type are written: what each family of types gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.destination.encode.json_values import TEXT, escaped, join
from penstock.model.table_schema import PgType


@dataclass(frozen=True)
class Content:
    """Values as JSON, null where they are null. ``quoted``: without the quotes around each."""

    values: pa.Array
    quoted: bool = False

    def tokens(self) -> pa.Array:
        """With their quotes, and ``null`` for null."""
        values = join('"', self.values, '"') if self.quoted else self.values
        return values.fill_null("null") if values.null_count else values


@dataclass(frozen=True)
class Form:
    """``schema`` is Connect's, without what the column adds; ``write`` takes Postgres texts.

    ``zero`` stands in a column that is NOT NULL where a value is not known; ``unavailable`` where
    Postgres did not send it because it did not change. That is None where no value of the type
    could say so. ``computed`` is the default that a schema names where the column's is an
    expression; None where it names none.
    """

    schema: Mapping[str, Any]
    write: Callable[[pa.Array], Content]
    zero: str
    unavailable: str | None = None
    computed: str | None = None


def strings(text: pa.Array) -> Content:
    """Texts as JSON strings."""
    return Content(escaped(text.cast(TEXT)), quoted=True)


def as_it_is(text: pa.Array) -> Content:
    """Texts that are JSON already."""
    return Content(text.cast(TEXT))


def one_by_one(text: pa.Array, token: Callable[[str], str | None]) -> Content:
    """For rare types: ``token`` makes JSON of one text."""
    tokens = [None if value is None else token(value) for value in text.to_pylist()]
    return Content(pa.array(tokens, TEXT))


def base_type(pg_type: PgType, typmod: int) -> tuple[PgType, int]:
    """What a domain, or a domain over one, is made of, with its modifier."""
    while pg_type.kind == "domain" and pg_type.inner is not None:
        pg_type, typmod = pg_type.inner, pg_type.typmod
    return pg_type, typmod
