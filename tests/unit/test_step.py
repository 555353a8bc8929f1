"""Columns that a step gave, and what encoders, row conditions and net rows make of them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.config.filter_config import FilterConfig
from penstock.decode.changes import ChangeSet, TableChanges
from penstock.decode.flat_rows import flat_changes
from penstock.decode.given_image import GivenColumn, Values
from penstock.destination.encode.bifrost.format import BifrostFormat
from penstock.destination.encode.bifrost.options import BifrostOptions
from penstock.destination.encode.debezium.format import DebeziumFormat
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.messages import Messages
from penstock.destination.encode.ndjson import table_lines
from penstock.destination.encode.penstock_json import PenstockFormat
from penstock.model.errors import DecodeError
from penstock.model.pg_types import builtin_type
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.testing.loud_step import LoudStep
from penstock.transform.filter import Filter
from penstock.transform.net_rows import net_rows

STEP = LoudStep("pets", "name", "title")
ID, SIZE = Column("id", "int8", key=True), Column("size", "int4")
QUIET = table("pets", ID, Column("name", "text"), SIZE)
LOUD = table("pets", ID, Column("title", "text"), SIZE)
OTHER = table("other", ID, Column("name", "text"), SIZE)


def written(of: Table, rex: str, tom: str) -> ChangeSet:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(of, "1", rex, "10")
        builder.insert(OTHER, "4", "quiet", None)
        builder.update(of, "1", UNSET, "20")
        builder.insert(of, "3", tom, None)
        builder.update(of, "5", tom, "7", key=("3", None, None))
        builder.delete(of, key=("5", None, None))
    return builder.cut()


def pets(changes: ChangeSet) -> TableChanges:
    return next(part for part in changes.tables if part.table.name == "pets")


def given() -> TableChanges:
    return pets(STEP.apply(written(QUIET, "rex", "tom")))


def expected() -> TableChanges:
    return pets(written(LOUD, "REX", "TOM"))


def messages(made: Messages) -> list[object]:
    # Debezium's format tells when a message was made.
    values = [text and re.sub(r'"ts_.s":\d+', "", text) for text in made.value.to_pylist()]
    return [made.row.tolist(), made.op.to_pylist(), made.key.to_pylist(), values]


ENCODERS: dict[str, Callable[[TableChanges], object]] = {
    "ndjson": lambda changes: table_lines(changes).text.to_pylist(),
    "parquet": lambda changes: flat_changes(changes).to_pylist(),
    "penstock": lambda changes: messages(PenstockFormat({}).changes(changes)),
    "bifrost": lambda changes: messages(BifrostFormat(BifrostOptions(), {}, {}).changes(changes)),
    "debezium": lambda changes: messages(
        DebeziumFormat(DebeziumOptions(server="shop", database="db"), {}, {}).changes(changes)
    ),
}


@pytest.mark.parametrize("encode", ENCODERS.values(), ids=ENCODERS)
def test_encoders_make_the_same_of_columns_that_were_given(
    encode: Callable[[TableChanges], object],
) -> None:
    assert encode(given()) == encode(expected())


def test_parts_and_selections_of_given_columns() -> None:
    ours, theirs = given(), expected()
    cuts: list[Callable[[TableChanges], TableChanges]] = [
        lambda changes: changes.part(1, 4),
        lambda changes: changes.take(np.array([0, 2, 4])),
        lambda changes: changes.part(1, 5).take(np.array([1, 3])).select([1, 0]),
        lambda changes: changes.select([1]),
    ]
    for cut in cuts:
        assert flat_changes(cut(ours)).to_pylist() == flat_changes(cut(theirs)).to_pylist()


def test_later_steps_see_what_earlier_ones_gave() -> None:
    later = Filter(FilterConfig.model_validate({"rows": {"pets": "title LIKE 'T%'"}}))
    (changes,) = later.apply(ChangeSet((given(),), (), ())).tables
    # Of rex the unset name is not known, and of the delete nothing but its key.
    assert changes.ordinal.tolist() == [2, 3, 4, 5]


def test_net_rows_of_given_columns() -> None:
    rows = net_rows(given().part(0, 3), [0])
    assert rows.text(1).to_pylist() == ["REX", "TOM"]
    assert rows.text(2).to_pylist() == ["20", None]


def test_what_is_not_touched_is_not_copied() -> None:
    changes = written(QUIET, "rex", "tom")
    other = next(part for part in changes.tables if part.table.name == "other")
    renamed = other.with_columns(replace(other.table, name="elsewhere"), [0, 1, 2])
    assert renamed.table.name == "elsewhere"
    assert renamed._group is other._group
    assert given().new_text(2).to_pylist() == ["10", "20", None, "7"]


def with_sizes(sizes: list[str | None], unset: list[bool] | None = None) -> TableChanges:
    changes = pets(written(QUIET, "rex", "tom"))
    mask = None if unset is None else np.array(unset)
    column = GivenColumn(
        Values(pa.array(sizes, pa.string()), mask), Values(pa.nulls(2, pa.string()))
    )
    kind = builtin_type(701)
    assert kind is not None
    size = replace(changes.table.columns[2], name="weight", type=kind)
    named = replace(changes.table, columns=(*changes.table.columns[:2], size))
    return changes.with_columns(named, [0, 1, column])


def test_a_given_column_has_the_type_that_its_table_says() -> None:
    changes = with_sizes(["1.5", None, "2", "3"], [False, True, False, False])
    assert changes.new_typed(2).values.to_pylist() == [1.5, None, 2.0, 3.0]
    assert changes.new_unset(2).tolist() == [False, True, False, False]
    assert changes.old_unset(2).tolist() == [False, False]


def test_a_wrong_value_is_placed() -> None:
    with pytest.raises(DecodeError, match=r"table public\.pets, column weight: .*heavy"):
        with_sizes(["heavy", None, None, None]).new_typed(2)


def test_a_step_is_pickled_to_executors() -> None:
    assert pickle.loads(pickle.dumps(STEP)) == STEP  # noqa: S301
