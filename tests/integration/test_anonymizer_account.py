"""Functions of the real PostgreSQL Anonymizer, where an environment variable names a database that
has it: `PENSTOCK_ANONYMIZER_URL`. The extension is created and initialised there (CREATE EXTENSION
anon; SELECT anon.init()); nothing is written.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.config.transform_config import ColumnRule, TransformConfig
from penstock.transform.anonymizer_session import close_kept
from penstock.transform.rules import Rules
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Inputs, Transformer, UnfitError

URL = os.environ.get("PENSTOCK_ANONYMIZER_URL")
TEXT = ColumnFacts("c", "text", "text")
MONEY = ColumnFacts("c", "numeric", "numeric", whole=8, scale=2)
DAY = ColumnFacts("c", "date", "date")
VALUES = ["anna@shop.de", "bob@x.org", "anna@shop.de", "+49 30 123456"]

pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(URL is None, reason="PENSTOCK_ANONYMIZER_URL names no database"),
]


@pytest.fixture(autouse=True)
def _sessions() -> Iterator[None]:
    yield
    close_kept()


def transformer(facts: ColumnFacts = TEXT, **said: Any) -> Transformer:
    config = {"anonymizer": {"url": URL}, "rules": [{"table": "a", "keep": ["*"]}]}
    rules = Rules(TransformConfig.model_validate(config))
    rule = ColumnRule.model_validate({"use": "anonymizer", **said})
    return rules.bind(rule, facts, "a.c").transformer


def applied(made: Transformer, values: list[str]) -> list[str | None]:
    sent = pickle.loads(pickle.dumps(made))  # noqa: S301
    found: list[str | None] = sent.apply(pa.array(values, pa.string()), Inputs()).to_pylist()
    return found


@pytest.mark.parametrize(
    "said",
    [
        {"function": "partial_email"},
        {"function": "partial", "arguments": ["{value}", 2, "***", 2]},
        {"function": "digest", "arguments": ["{value}", "salt", "sha256"]},
        {"function": "hash"},
        {"function": "pseudo_first_name"},
        {"function": "pseudo_email", "arguments": ["{value}", "salt"]},
    ],
    ids=lambda said: said["function"],
)
def test_the_same_again(said: dict[str, Any]) -> None:
    made = transformer(**said)
    found = applied(made, VALUES)
    assert found[0] == found[2]
    assert found[0] != VALUES[0]
    close_kept()
    assert applied(made, VALUES) == found
    assert transformer(**said).vocabulary == made.vocabulary


@pytest.mark.parametrize(
    ("facts", "value", "said"),
    [
        (TEXT, "x", {"function": "fake_city", "arguments": []}),
        (TEXT, "x", {"function": "random_string", "arguments": [12]}),
        (MONEY, "1000.00", {"function": "noise", "arguments": ["{value}", 0.1]}),
        (DAY, "2001-02-03", {"function": "dnoise", "arguments": ["{value}", "100 days"]}),
    ],
    ids=lambda said: said["function"] if isinstance(said, dict) else "",
)
def test_what_draws_says_so(facts: ColumnFacts, value: str, said: dict[str, Any]) -> None:
    with pytest.raises(UnfitError, match=r"random: true|arguments"):
        transformer(facts, **said)
    if said["function"] != "random_string":  # takes a range from 2.0 on
        assert len(set(applied(transformer(facts, **said, random=True), [value] * 50))) > 1


def test_values_of_256_bits() -> None:
    made = transformer(function="digest", arguments=["{value}", "salt", "sha256"])
    assert made.uniqueness == "not promised"
    assert transformer(function="partial_email").uniqueness == "lost"
