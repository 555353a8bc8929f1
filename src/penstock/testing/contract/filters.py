"""What every destination promises of rows and columns that a filter lets pass: one that holds rows
holds those that meet the condition, without the columns that are left out.
"""

from __future__ import annotations

import pytest

from penstock.config.filter_config import FilterConfig
from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Destination
from penstock.destination.protocols import TakesCopies
from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.chunk_rows import ChunkRows
from penstock.testing.contract.deliveries import (
    assert_delivered,
    definition,
    deliver,
    opened,
    reference,
)
from penstock.testing.merge_model import MergeModel
from penstock.transform.filter import Filter

COLUMNS = Column("id", "int8", key=True), Column("name", "text"), Column("note", "text")
PETS = table("pets", *COLUMNS, identity="f")
SHOWN = table("pets", *COLUMNS[:2], identity="f")
NAME = (PETS.schema, PETS.name)
CONFIG = {"columns": {"pets": {"exclude": ["note"]}}, "rows": {"pets": "name <> 'hidden'"}}


def filtered(destination: Destination) -> Filter:
    """As a pipeline makes it for such a destination."""
    config = FilterConfig.model_validate(CONFIG)
    return Filter(config, holds_rows=destination.capabilities.merges)


def tell(builder: ChangeBuilder) -> ChangeSet:
    """Rows that begin to meet the condition, and cease to, also with another key and by rows that
    were not sent whole.
    """
    with builder.transaction():
        for key, name in (("1", "rex"), ("2", "hidden"), ("3", "tom"), ("4", "hidden")):
            builder.insert(PETS, key, name, "secret")
    with builder.transaction():
        builder.update(PETS, "1", "hidden", "secret", full=("1", "rex", "secret"))
        builder.update(PETS, "2", "tim", UNSET, full=("2", "hidden", "secret"))
        builder.update(PETS, "5", UNSET, "secret 2", full=("3", "tom", "secret"))
        builder.update(PETS, "6", "hidden", "secret", full=("4", "hidden", "secret"))
    with builder.transaction():
        builder.update(PETS, "7", "leo", "secret", full=("6", "hidden", "secret"))
        builder.update(PETS, "1", "max", "secret", full=("1", "hidden", "secret"))
        builder.delete(PETS, full=("2", "tim", "secret"))
        builder.insert(PETS, "8", "hidden", "secret")
        builder.delete(PETS, full=("8", "hidden", "secret"))
        builder.insert(PETS, "2", "again", "secret")
    return builder.cut()


class FilterTests:
    """Rows and columns that pass."""

    def test_rows_and_columns_that_pass_are_delivered(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        wanted = filtered(destination)
        destination.prepare([wanted.definition(definition(PETS))])
        changes = tell(builder)
        given = wanted.apply(changes)
        assert all("note" not in (change.new or {}) for change in reference(given))
        deliver(destination, builder.frontier, [given])
        assert_delivered(adapter, reference(given), SHOWN)
        if adapter.keeps == "rows":
            every = MergeModel({NAME: ["id"]})
            every.apply(reference(changes))
            passing = [dict(row) for row in every.rows(NAME) if dict(row)["name"] != "hidden"]
            found = [dict(row) for row in adapter.rows(NAME).elements()]
            expected = [{"id": row["id"], "name": row["name"]} for row in passing]
            assert sorted(found, key=str) == sorted(expected, key=str)

    def test_copied_rows_that_pass_are_delivered(self, adapter: Adapter) -> None:
        destination = opened(adapter)
        if not isinstance(destination, TakesCopies):
            pytest.skip(f"{destination.name} takes no copies: it is not TakesCopies")
        wanted = filtered(destination)
        shown = wanted.definition(definition(PETS))
        destination.prepare([shown])
        names = ("1", "rex"), ("2", "hidden"), ("3", "tom"), ("4", None)
        rows = ChunkRows(PETS, "0", [(key, name, "secret") for key, name in names])
        receipt = destination.chunk_writer(shown).write(wanted.copied(rows))
        destination.commit_chunks([receipt])
        assert receipt.rows == 2
        expected: list[dict[str, str | None]] = [
            {"id": "1", "name": "rex"},
            {"id": "3", "name": "tom"},
        ]
        if adapter.keeps == "a count":
            assert adapter.copied_count() == 2
        elif adapter.keeps == "rows":
            found = [dict(row) for row in adapter.rows(NAME).elements()]
            assert sorted(found, key=str) == expected
        else:
            copied = [change.new or {} for change in adapter.copied()]
            assert sorted(map(dict, copied), key=str) == expected
