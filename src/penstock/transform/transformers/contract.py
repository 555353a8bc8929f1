"""What a transformer is: texts of one column in, texts of the same column out.

Texts are Postgres's own. A transformer never sees a null: those stay, or come as empty texts where
the rule says ``nulls: transform``. It is made on the driver, pickled to executors, and called there
for changes and for copied rows alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.draws import Drawn, Draws
from penstock.transform.transformers.keys import Keys

if TYPE_CHECKING:
    from penstock.transform.anonymizer_functions import AnonymizerFunctions

Uniqueness = Literal["kept", "not promised", "lost"]
"""Whether different values stay different: always, very likely, or not."""


class UnfitError(Exception):
    """A transformer does not suit its column or its options; ``why`` shows no value of a row."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class ValueRefusedError(Exception):
    """A value that a transformer cannot take; ``why`` does not show it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class NoOptions(BaseModel):
    """A transformer without options."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class DrawOptions(NoOptions):
    """``random``: another value each time, in place of the same for the same input."""

    random: bool = False


@dataclass(frozen=True)
class Inputs:
    """Other columns of the same rows, by name: ``raw`` as they came, ``made`` as they will leave.
    They may hold nulls.
    """

    raw: Mapping[str, pa.Array] = field(default_factory=dict)
    made: Mapping[str, pa.Array] = field(default_factory=dict)

    def take(self, rows: pa.Array) -> Inputs:
        return Inputs(
            {name: column.take(rows) for name, column in self.raw.items()},
            {name: column.take(rows) for name, column in self.made.items()},
        )


class Transformer(ABC):
    """One rule at work. ``options`` were checked by ``options_model``.

    ``families`` are the kinds of columns that it suits; None for all. ``is_keyed``: it needs the
    pipeline's key unless it draws at random. ``takes_nulls``: an empty text in place of a null
    gives something sensible. ``is_folding``: all that it makes of a value is ``drawn``.
    """

    options_model: ClassVar[type[NoOptions]] = NoOptions
    families: ClassVar[frozenset[str] | None] = frozenset({"text"})
    is_keyed: ClassVar[bool] = True
    takes_nulls: ClassVar[bool] = False
    is_folding: ClassVar[bool] = False
    version: ClassVar[int] = 1
    """Counted up where the same input gives another output than before."""

    def __init__(self, options: Any, keys: Keys, facts: ColumnFacts) -> None:
        self.options = options
        self.facts = facts
        self._keys = keys
        self._draws = (
            Draws(None if self.is_random else keys.subkey(self.key_name, 48))
            if (self.is_keyed)
            else None
        )

    @property
    def key_name(self) -> str:
        """Which key it draws with: the same for all columns of a domain. A class that is renamed
        keeps its old name here, or all that it gives is another.
        """
        return type(self).__name__

    @property
    def is_random(self) -> bool:
        return bool(getattr(self.options, "random", False))

    @property
    def uniqueness(self) -> Uniqueness:
        return "lost"

    @property
    def raw_inputs(self) -> tuple[str, ...]:
        """Other columns whose own values it needs."""
        return ()

    @property
    def made_inputs(self) -> tuple[str, ...]:
        """Other columns that it needs as they will leave."""
        return ()

    @property
    def vocabulary(self) -> str:
        """A digest of the words that it chooses from; empty where it has none."""
        return ""

    @property
    def limit(self) -> int | None:
        """The column's length where what it gives hangs on it; None where it does not."""
        return self.facts.length

    @property
    def folds_case(self) -> bool:
        """Whether it gives the same for values that the column takes for equal (citext)."""
        return self.is_folding and self.facts.type_name == "citext"

    def asks(self, functions: AnonymizerFunctions) -> None:  # noqa: B027 (most ask nobody)
        """Which database has the functions of ``anonymizer``: told before ``check``, where the rule
        is that of a whole column.
        """

    def check(self) -> None:  # noqa: B027 (most take every option that their model takes)
        """Raise UnfitError where options and column do not go together."""

    @abstractmethod
    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        """As many texts as came, in their order; null where a value is to be null.

        Raises ValueRefusedError.
        """

    def undo(self, values: pa.Array) -> pa.Array:
        """What ``apply`` made these of. Only of those that keep keys apart; a copy needs it where
        rows of a table change their keys while it is copied. Raises ValueRefusedError.
        """
        raise ValueRefusedError("it cannot be undone")

    def drawn(self, values: pa.Array) -> Drawn:
        """128 bits for each value: the same for the same, or random ones."""
        assert self._draws is not None  # noqa: S101 (is_keyed says so)
        if self.folds_case:
            values = pa.compute.utf8_lower(values)
        return self._draws.of(values)

    def cut(self, texts: pa.Array) -> pa.Array:
        """The texts, as long as the column takes them."""
        if self.facts.length is None:
            return texts
        return pa.compute.utf8_slice_codeunits(texts, 0, self.facts.length)
