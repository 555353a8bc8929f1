"""What `penstock verify` makes of tables that the destination's engine cannot add up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.destination.protocols import TableSum, Verifiable
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.watermarks import Watermarks
from penstock.testing.contract.deliveries import ITEMS, NOTES, definition
from penstock.verify import engine_sums
from penstock.verify.engine_sums import EngineVerdict

SUM = TableSum(1, 7)


class Engine(Verifiable):
    def __init__(self, error: Exception) -> None:
        self.error = error

    @contextmanager
    def pinned(self) -> Iterator[None]:
        yield

    def table_sum(self, table: TableDefinition) -> TableSum | None:
        if table.oid == ITEMS.oid:
            raise self.error
        return SUM


class Going(Engine):
    """Goes on while it is pinned, as one whose barrier nobody could renew."""

    def __init__(self, *positions: int) -> None:
        super().__init__(DestinationError("not asked"))
        self._positions = [*positions]

    def committed(self) -> Watermarks:
        return Watermarks(Frontier(0, self._positions.pop(0)))


def test_an_engine_that_went_on_while_it_was_pinned_is_no_verdict() -> None:
    for positions, is_there in (((50, 50), True), ((50, 60), False)):
        engine: Any = Going(*positions)
        verdict = EngineVerdict(engine, 50)
        verdict.reach(lambda: False, time.monotonic() + 60)
        refused = pytest.raises(DestinationError, match="went past")
        with nullcontext() if is_there else refused, verdict.pinned() as at:
            assert at.frontier.end_lsn == 50


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    names = {TableName(each.schema, each.name): None for each in (ITEMS, NOTES)}
    monkeypatch.setattr(engine_sums, "find_relations", lambda *_: names)
    monkeypatch.setattr(engine_sums, "_source_sum", lambda *_: SUM)
    monkeypatch.setattr(engine_sums, "rewritten_since", lambda *_: set())
    return SimpleNamespace(asked=nullcontext, guard=lambda _: nullcontext())


def compared(error: Exception, source: Any) -> dict[str, Any]:
    engine: Any = Engine(error)
    found = EngineVerdict(engine, 1).compare(source, [definition(ITEMS), definition(NOTES)])
    return {each.source: each for each in found}


def test_a_table_that_the_engine_refuses_keeps_no_other_one_from_being_compared(
    source: Any,
) -> None:
    found = compared(DestinationError("no column name", remedy="see"), source)
    assert found["public.items"].not_compared == "no column name"
    assert found["public.notes"].target_rows == 1


def test_an_engine_that_is_away_is_no_verdict(source: Any) -> None:
    with pytest.raises(DestinationUnavailable):
        compared(DestinationUnavailable("away", remedy="wait"), source)


def test_a_table_that_the_source_emptied_meanwhile_is_not_compared(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot shows no rows of it any more: all would be missing at the source, or none at
    all where the destination has lost them.
    """
    name = TableName(NOTES.schema, NOTES.name)
    monkeypatch.setattr(engine_sums, "rewritten_since", lambda *_: {name})
    found = compared(DestinationError("no column name", remedy="see"), source)
    assert "truncated or rewritten" in found["public.notes"].not_compared
    assert found["public.items"].not_compared == "no column name"
