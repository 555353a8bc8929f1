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
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import HealthCheck, given, settings, strategies

from penstock.transform.transformers.column_facts import ColumnFacts, text_facts
from penstock.transform.transformers.constants import why_unfit
from penstock.transform.transformers.contract import Inputs, Transformer
from penstock.transform.transformers.keys import Keys

KEY = b"a key of the test suite, of which nobody makes use"
_SEVERAL = 20

_SEEDS, _COUNTS = strategies.integers(0, 2**32 - 1), strategies.integers(0, 200)


def _for_many(test: Callable[[Any, int, int], None]) -> Callable[[Any], None]:
    """Run a test for values of many seeds, from none on."""
    # Every class runs the tests that it inherits, with values of its own.
    inherited = [HealthCheck.differing_executors]
    tried = settings(max_examples=40, deadline=None, database=None, suppress_health_check=inherited)
    return tried(given(seed=_SEEDS, count=_COUNTS)(test))


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

    def given(self, seed: int, count: int) -> tuple[pa.Array, Inputs]:
        random = Random(seed)  # noqa: S311 (values of a test)
        values = pa.array(self.values(random, count), pa.string())
        made = self.made()
        others = {
            name: pa.array(self.other_column(random, count), pa.string())
            for name in (*made.raw_inputs, *made.made_inputs)
        }
        return values, Inputs(others, others)

    @_for_many
    def test_one_text_for_each_value(self, seed: int, count: int) -> None:
        values, inputs = self.given(seed, count)
        made = self.made().apply(values, inputs)
        assert len(made) == len(values)
        assert pa.types.is_string(made.type) or pa.types.is_large_string(made.type)

    @_for_many
    def test_the_same_value_gives_the_same(self, seed: int, count: int) -> None:
        """In any order, any part of the column, and after it was pickled."""
        made = self.made()
        if made.is_random:
            return
        values, inputs = self.given(seed, count)
        first = made.apply(values, inputs).to_pylist()
        turned = pa.array(range(count - 1, -1, -1), pa.int64())
        again = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own)
        assert again.apply(values.take(turned), inputs.take(turned)).to_pylist() == first[::-1]
        begin, end = count // 5, count // 2
        part = pa.array(range(begin, end), pa.int64())
        some = made.apply(values.slice(begin, end - begin), inputs.take(part))
        assert some.to_pylist() == first[begin:end]

    def test_it_does_not_show_its_key(self) -> None:
        assert KEY.decode() not in repr(vars(self.made()))

    @_for_many
    def test_another_domain_gives_another_value(self, seed: int, count: int) -> None:
        made = self.made()
        if not type(made).is_keyed or made.is_random or made.uniqueness == "lost":
            return
        # One alone may become the same by chance.
        values, inputs = self.given(seed, count + _SEVERAL)
        other = self.made("other").apply(values, inputs)
        assert other.to_pylist() != made.apply(values, inputs).to_pylist()

    @_for_many
    def test_values_stay_apart_as_promised(self, seed: int, count: int) -> None:
        made = self.made()
        if made.uniqueness == "lost":
            return
        values, inputs = self.given(seed, count)
        assert len(made.apply(values, inputs).unique()) == len(values.unique())

    @_for_many
    def test_what_keeps_keys_apart_can_be_undone(self, seed: int, count: int) -> None:
        made = self.made()
        if made.uniqueness != "kept":
            return
        values, inputs = self.given(seed, count)
        assert made.undo(made.apply(values, inputs)).to_pylist() == values.to_pylist()

    @_for_many
    def test_what_comes_fits_the_column(self, seed: int, count: int) -> None:
        values, inputs = self.given(seed, count)
        for text in set(self.made().apply(values, inputs).to_pylist()) - {None}:
            assert why_unfit(text, self.facts) is None
