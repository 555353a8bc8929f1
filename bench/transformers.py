"""transformers: how many values a second one core changes; and rules for a pipeline over w1."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.process_usage import usage
from bench.results import Measurement
from bench.settings import TRANSFORMED, TRANSFORMERS, turns
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Inputs
from penstock.transform.transformers.keys import Keys
from penstock.transform.transformers.registry import transformer_class

_KEY: Final = "a key of the benchmark, of which nobody makes use"
_VALUES: Final = 1_000_000
_TEXT: Final = ColumnFacts("column", "text", "text")
_RULES: Final[Mapping[str, tuple[ColumnFacts, dict[str, Any]]]] = {
    "mask": (_TEXT, {"kind": "email"}),
    "hash": (_TEXT, {}),
    "choice": (_TEXT, {"choices": ["a", "b", "c"]}),
    "person_name": (_TEXT, {}),
    "email": (_TEXT, {"keep_domain": True}),
    "integer_key": (ColumnFacts("column", "integer", "bigint", bits=63), {}),
    "token": (_TEXT, {}),
    "shift": (ColumnFacts("column", "date", "date"), {"by": "family"}),
    "encrypt": (_TEXT, {}),
    "json": (ColumnFacts("column", "json", "jsonb"), {"transform": {"email": {"use": "email"}}}),
}

FIVE_RULES: Final[dict[str, Any]] = {
    "key": _KEY,
    "rules": [
        {
            "table": "public.*",
            "columns": {
                "id": "integer_key",
                "name": "person_name",
                "note": {"use": "mask", "keep_first": 4},
                "price": {"use": "noise", "ratio": 0.1},
                "changed_at": {"use": "shift", "by": "id"},
            },
            "keep": ["quantity", "tags", "details"],
        }
    ],
}
"""For w1's table."""


def rules_of(system: str) -> dict[str, Any]:
    """What a system adds to its pipeline file."""
    return {"transform": FIVE_RULES} if system == TRANSFORMED else {}


def measure_transformers(
    scale: float, systems: tuple[str, ...], rounds: int, say: Callable[[str], None]
) -> Iterator[Measurement]:
    """Seconds are those of the processor, of all threads together; all values are different."""
    count = max(int(_VALUES * scale), 1000)
    for number, system in turns(systems, rounds):
        name = TRANSFORMERS[system]
        facts, options = _RULES[name]
        kind = transformer_class(name)
        made = kind(kind.options_model.model_validate(options), Keys(_KEY.encode()), facts)
        values = _values(name, count)
        inputs = Inputs(dict.fromkeys(made.raw_inputs, values))
        made.apply(values.slice(0, 1000), Inputs({o: values.slice(0, 1000) for o in inputs.raw}))
        began = time.process_time()
        made.apply(values, inputs)
        spent = time.process_time() - began
        rss = usage(os.getpid()).peak_rss_mb
        measured = Measurement("transformers", system, count, spent, spent, None, rss)
        say(
            f"transformers round {number + 1} of {rounds}: {name} "
            f"{measured.rows_per_s:,.0f} values/s"
        )
        yield measured


def _values(name: str, count: int) -> pa.Array:
    numbers = pa.array(np.arange(count)).cast(pa.string())
    join = pa.compute.binary_join_element_wise
    if name == "integer_key":
        return numbers
    if name == "token":
        return join("+49 ", pa.compute.utf8_lpad(numbers, 10, "0"), "")
    if name == "shift":
        return (
            pa.array((np.arange(count) % 20_000).astype(np.int32))
            .cast(pa.date32())
            .cast(pa.string())
        )
    emails = join("person", numbers, ".name@mail.example", "")
    if name == "json":
        return join('{"a": 1, "email": "', emails, '", "address": {"city": "Bonn"}}', "")
    return emails
