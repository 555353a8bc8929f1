"""Transformers that forget the value: a literal, null, a choice, a boolean."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, Field

from penstock.transform.transformers.contract import (
    DrawOptions,
    Inputs,
    NoOptions,
    Transformer,
    UnfitError,
    Uniqueness,
)
from penstock.transform.transformers.drawing import as_texts, below, fractions, words


def literal_text(value: object) -> object:
    """YAML's numbers and booleans as Postgres writes them."""
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(literal_text)]


class LiteralOptions(NoOptions):
    """``value`` is what every row gets, as Postgres writes it."""

    value: Text


class Constant(Transformer):
    """The same value everywhere."""

    options_model = LiteralOptions
    families = None
    is_keyed = False
    takes_nulls = True

    def check(self) -> None:
        check_texts(self, [self.options.value])

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return pa.repeat(pa.scalar(self.options.value, pa.string()), len(values))


class Null(Transformer):
    """Null everywhere."""

    families = None
    is_keyed = False

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return pa.nulls(len(values), pa.string())


class ChoiceOptions(DrawOptions):
    """``choices`` are as Postgres writes them; ``weights`` how often each is taken."""

    choices: list[Text] = Field(min_length=1)
    weights: list[Annotated[float, Field(gt=0)]] | None = None


class Choice(Transformer):
    """One of some values."""

    options_model = ChoiceOptions
    families = None
    takes_nulls = True

    def check(self) -> None:
        weights = self.options.weights
        if weights is not None and len(weights) != len(self.options.choices):
            raise UnfitError("weights needs as many numbers as there are choices")
        check_texts(self, self.options.choices)

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        choices = as_texts(self.options.choices)
        drawn = self.drawn(values)
        if self.options.weights is None:
            return words(drawn, choices)
        import numpy as np

        upto = np.cumsum(self.options.weights)
        found = np.searchsorted(upto, fractions(drawn) * upto[-1], side="right")
        return choices.take(pa.array(np.minimum(found, len(choices) - 1)))


class BooleanOptions(DrawOptions):
    """``share`` is how many of all are true."""

    share: float = Field(default=0.5, ge=0, le=1)


class Boolean(Transformer):
    """True or false."""

    options_model = BooleanOptions
    families = frozenset({"boolean"})
    takes_nulls = True

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return pa.compute.if_else(
            pa.array(fractions(self.drawn(values)) < self.options.share), "t", "f"
        )


class StringOptions(DrawOptions):
    """Texts of ``min_length`` to ``max_length`` letters of ``alphabet``."""

    min_length: int = Field(default=8, ge=0)
    max_length: int = Field(default=16, ge=1, le=4096)
    alphabet: str = Field(
        default="abcdefghijklmnopqrstuvwxyz0123456789", min_length=2, max_length=256
    )
    keep_length: bool = False


class String(Transformer):
    """Letters that mean nothing."""

    options_model = StringOptions
    takes_nulls = True
    is_folding = True
    limit = None

    @property
    def uniqueness(self) -> Uniqueness:
        bits = self.options.min_length * (len(self.options.alphabet).bit_length() - 1)
        return "not promised" if bits >= 64 and not self.options.keep_length else "lost"

    def check(self) -> None:
        options = self.options
        if not options.alphabet.isascii() or options.min_length > options.max_length:
            raise UnfitError("alphabet takes ASCII alone, and min_length is at most max_length")
        if self.facts.length is not None and options.max_length > self.facts.length:
            raise UnfitError(
                f"max_length is {options.max_length}, but the column takes {self.facts.length}"
            )

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        import numpy as np

        from penstock.transform.transformers.drawing import letters

        drawn, options = self.drawn(values), self.options
        if options.keep_length:
            lengths = np.asarray(pa.compute.utf8_length(values)).astype(np.int64)
        else:
            width = options.max_length - options.min_length + 1
            lengths = options.min_length + below(drawn, width, 1)
        return letters(drawn, options.alphabet.encode(), lengths)


def check_texts(transformer: Transformer, texts: list[str]) -> None:
    """Raise UnfitError for a text that is no value of the column's type."""
    facts: Any = transformer.facts
    for text in texts:
        if (why := why_unfit(text, facts)) is not None:
            raise UnfitError(f"{text!r} {why}")


def why_unfit(text: str, facts: Any) -> str | None:
    """Why a literal is no value of a column; None where it may be one."""
    if facts.length is not None and len(text) > facts.length:
        return f"is longer than the {facts.length} characters of the column"
    if facts.family == "enum" and facts.labels and text not in facts.labels:
        return f"is no label of {facts.type_name}"
    from penstock.transform.transformers.parsing import parses

    return None if parses(text, facts) else f"is no {facts.type_name}"
