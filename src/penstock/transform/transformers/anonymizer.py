"""Functions of PostgreSQL Anonymizer, called in the database that has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import (
    DrawOptions,
    Inputs,
    Transformer,
    UnfitError,
    Uniqueness,
)

if TYPE_CHECKING:
    from penstock.transform.anonymizer_functions import AnonymizerFunctions, Argument, MaskingCall

_VALUE = "{value}"
_HASHES = frozenset({"hash", "digest"})
_SHA256 = re.compile(r"[0-9a-f]{64,}")


def _placed(arguments: list[str | int | float | bool | None]) -> list[Argument]:
    for each in arguments:
        if isinstance(each, str) and each != _VALUE and _VALUE in each:
            raise PydanticCustomError(
                "anonymizer_argument", "the argument {value} stands by itself, with no text"
            )
        if isinstance(each, str) and "\0" in each:
            raise PydanticCustomError("anonymizer_argument", "no argument has a NUL in it")
    return arguments


class AnonymizerOptions(DrawOptions):
    """``function`` is one of the extension's, without its schema; ``{value}`` among its
    ``arguments`` stands for the column's value.
    """

    function: str = Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    arguments: Annotated[list[str | int | float | bool | None], AfterValidator(_placed)] = Field(
        default=[_VALUE], max_length=20
    )


class Anonymizer(Transformer):
    """What a function of the extension ``anon`` gives: one statement for all values of a batch."""

    options_model = AnonymizerOptions
    families = None
    is_keyed = False
    _functions: AnonymizerFunctions | None = None

    def asks(self, functions: AnonymizerFunctions) -> None:
        self._functions = functions

    @property
    def call(self) -> MaskingCall:
        """Raises UnfitError for a type that may be another one in the database of the function."""
        from penstock.transform.anonymizer_functions import MaskingCall

        kind = postgres_type(self.facts)
        if kind is None:
            raise UnfitError(f"anonymizer does not take {self.facts.type_name}")
        options = self.options
        return MaskingCall(
            options.function, tuple(options.arguments), kind, self.facts.family, self.is_random
        )

    @property
    def uniqueness(self) -> Uniqueness:
        """Of hashes that give 256 bits it is as with ``hash``."""
        if self.is_random or self.options.function not in _HASHES or not self._functions:
            return "lost"
        made = [text for _, text in self._functions.known(self.call).probes]
        is_long = bool(made) and all(text and _SHA256.fullmatch(text) for text in made)
        return "not promised" if is_long else "lost"

    @property
    def vocabulary(self) -> str:
        """What tells the function from one that gives something else."""
        return "" if self._functions is None else self._functions.known(self.call).mark

    def check(self) -> None:
        call = self.call
        if self._functions is None:
            raise UnfitError("anonymizer is for whole columns, not for a part of a value")
        self._functions.known(call)

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        assert self._functions is not None  # noqa: S101 (check has looked)
        if not len(values):
            return pa.array([], pa.string())
        if self.is_random:
            made = self._functions.applied(self.call, values.to_pylist())
            return pa.array(made, pa.string())
        coded = values.cast(pa.string()).dictionary_encode()
        made = self._functions.applied(self.call, coded.dictionary.to_pylist())
        return pa.array(made, pa.string()).take(coded.indices)


def postgres_type(facts: ColumnFacts) -> str | None:
    """The column's type, as every Postgres knows it; None where only its own database does."""
    match facts.family:
        case "text" if facts.padded:
            return "bpchar" if facts.length is None else f"character({facts.length})"
        case "text":
            return "text" if facts.length is None else f"character varying({facts.length})"
        case "integer":
            return {63: "bigint", 31: "integer", 15: "smallint"}.get(facts.bits)
        case "numeric" if facts.whole is not None and facts.scale is not None:
            return f"numeric({facts.whole + facts.scale}, {facts.scale})"
        case "float":
            is_short = facts.type_name in ("real", "float4")
            return "real" if is_short else "double precision"
        case "timestamp":
            return "timestamp with time zone" if facts.zoned else "timestamp without time zone"
        case "time":
            return "time without time zone"
        case "ip":
            return "cidr" if facts.type_name == "cidr" else "inet"
        case "json":
            return "json" if facts.type_name == "json" else "jsonb"
        case "numeric" | "boolean" | "date" | "uuid" | "bytea" | "point" as family:
            return family
    return None
