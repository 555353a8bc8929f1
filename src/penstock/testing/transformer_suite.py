"""What every transformer promises, as tests: shipped, so that packages with their own run them.

Subclass ``TransformerTests`` in a test file, and say which transformer and which values::

    class TestShout(TransformerTests):
        transformer = Shout
        options = {"loud": True}

        def values(self, random: Random, count: int) -> list[str]:
            return [f"name {random.randrange(10**6)}" for _ in range(count)]
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar

import pyarrow as pa

from penstock.transform.transformers.column_facts import ColumnFacts, text_facts
from penstock.transform.transformers.constants import why_unfit
from penstock.transform.transformers.contract import Inputs, Transformer
from penstock.transform.transformers.keys import Keys

KEY = b"a key of the test suite, of which nobody makes use"
_COUNT = 400


class TransformerTests:
    """``facts`` are those of the column; ``other_column`` gives raw inputs where it needs some."""

    transformer: ClassVar[type[Transformer]]
    options: ClassVar[Mapping[str, Any]] = {}
    facts: ClassVar[ColumnFacts] = text_facts("column")

    def values(self, random: Random, count: int) -> list[str]:
        """Texts as Postgres writes them for such a column."""
        raise NotImplementedError

    def other_column(self, random: Random, count: int) -> list[str]:
        return [str(random.randrange(100)) for _ in range(count)]

    def made(self, domain: str = "") -> Transformer:
        kind = self.transformer
        options = kind.options_model.model_validate(dict(self.options))
        made = kind(options, Keys(KEY, domain), self.facts)
        made.check()
        return made

    def given(self, count: int = _COUNT) -> tuple[pa.Array, Inputs]:
        random = Random(17)  # noqa: S311 (values of a test)
        values = pa.array(self.values(random, count), pa.string())
        made = self.made()
        others = {
            name: pa.array(self.other_column(random, count), pa.string())
            for name in (*made.raw_inputs, *made.made_inputs)
        }
        return values, Inputs(others, others)

    def test_one_text_for_each_value(self) -> None:
        values, inputs = self.given()
        made = self.made().apply(values, inputs)
        assert len(made) == len(values)
        assert pa.types.is_string(made.type) or pa.types.is_large_string(made.type)

    def test_nothing_gives_nothing(self) -> None:
        values, inputs = self.given(0)
        assert len(self.made().apply(values, inputs)) == 0

    def test_the_same_value_gives_the_same(self) -> None:
        """In any order, any part of the column, and after it was pickled."""
        made = self.made()
        if made.is_random:
            return
        values, inputs = self.given()
        first = made.apply(values, inputs).to_pylist()
        turned = pa.array(range(len(values) - 1, -1, -1))
        again = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own)
        assert again.apply(values.take(turned), inputs.take(turned)).to_pylist() == first[::-1]
        part = pa.array(range(3, 50))
        assert made.apply(values.slice(3, 47), inputs.take(part)).to_pylist() == first[3:50]

    def test_it_does_not_show_its_key(self) -> None:
        assert KEY.decode() not in repr(vars(self.made()))

    def test_another_domain_gives_another_value(self) -> None:
        made = self.made()
        if not type(made).is_keyed or made.is_random or made.uniqueness == "lost":
            return
        values, inputs = self.given()
        other = self.made("other").apply(values, inputs)
        assert other.to_pylist() != made.apply(values, inputs).to_pylist()

    def test_values_stay_apart_as_promised(self) -> None:
        made = self.made()
        if made.uniqueness == "lost":
            return
        values, inputs = self.given()
        assert len(made.apply(values, inputs).unique()) == len(values.unique())

    def test_what_keeps_keys_apart_can_be_undone(self) -> None:
        made = self.made()
        if made.uniqueness != "kept":
            return
        values, inputs = self.given()
        assert made.undo(made.apply(values, inputs)).to_pylist() == values.to_pylist()

    def test_what_comes_fits_the_column(self) -> None:
        values, inputs = self.given()
        for text in set(self.made().apply(values, inputs).to_pylist()) - {None}:
            assert why_unfit(text, self.facts) is None
