"""What a destination is told of tables by another one that has followed them for longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.config.filter_config import FilterConfig
from penstock.config.transform_config import TransformConfig
from penstock.model.lsn import Frontier
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables import sibling_schemas
from penstock.pipeline.tables.sibling_schemas import SiblingSchemas
from penstock.store import MemoryStore
from penstock.testing.change_builder import Column, table
from penstock.testing.contract.deliveries import definition
from penstock.transform.transform import Transform

PEOPLE = table("people", Column("id", "int4", key=True), Column("email", "text"))


class Changed:
    """A log that tells of schema changes."""

    def __init__(self, log: object) -> None:
        pass

    def next_after(self, listing: object, lsn: int) -> int:
        return lsn + 1


def test_rules_hold_for_what_another_destination_has_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its defaults are made in clear, and its rows are taken for those of other rules."""
    now = definition(PEOPLE)
    planted = replace(now.columns[1], default="'pl4nted'::text")
    before = replace(now, columns=(now.columns[0], planted))
    store = MemoryStore("other")
    store.store_table_schemas([before], 5)

    monkeypatch.setattr(store, "exists", lambda: True, raising=False)
    monkeypatch.setattr(store, "load_table_schemas", lambda: None)

    @contextmanager
    def opened(config: object) -> Iterator[Any]:
        yield store

    other = SimpleNamespace(delivery="other", filter=FilterConfig())
    monkeypatch.setattr(sibling_schemas, "SchemaPoints", Changed)
    monkeypatch.setattr(sibling_schemas, "load_deliveries", lambda file: [other])
    monkeypatch.setattr(sibling_schemas, "pipeline_store", opened)
    rules = [{"table": "people", "columns": {"email": "hash"}, "keep": ["id"]}]
    key = "a key of the tests, of which nobody makes use"
    transform = Transform(TransformConfig.model_validate({"key": key, "rules": rules}))
    context = SimpleNamespace(
        config=SimpleNamespace(
            is_one_of_many=True,
            source=SimpleNamespace(copy_rows=None),
            replays_log=True,
            delivery="mine",
        ),
        log=SimpleNamespace(list=lambda: None),
        file=Path("none"),
        filter=None,
        transform=transform,
        destination=SimpleNamespace(capabilities=SimpleNamespace(merges=True)),
    )
    found = SiblingSchemas(cast("RunContext", context)).as_of([now], Frontier(9, 9))
    assert "pl4nted" not in str(found)
    assert list(found) == [transform.definition(before)]
    assert found[0].transform
