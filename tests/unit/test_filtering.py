"""Filters beside destinations that hold rows: what is refused, and what those are told of the
source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.config.filter_config import FilterConfig
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.model.errors import ConfigError
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_name import TableName
from penstock.pipeline.run.filtering import check_filter, seen_by
from penstock.source.contract import Reconciled, Source, SourceSession, Subscription
from penstock.transform.filter import Filter

TEXT = TypeName("pg_catalog", "text")


def table(oid: int, name: str) -> TableDefinition:
    columns = (ColumnDefinition(1, "id", TEXT, not_null=True), ColumnDefinition(2, "secret", TEXT))
    return TableDefinition(oid, "public", name, "d", columns, primary_key=("id",))


TABLES = {1: table(1, "items"), 2: table(2, "orders"), 3: table(3, "hidden")}
NAMES = {oid: TableName(t.schema, t.name) for oid, t in TABLES.items()}
WANTED = FilterConfig.model_validate(
    {"tables": {"exclude": ["hidden"]}, "columns": {"items": {"exclude": ["secret"]}}}
)


def config(**wanted: Any) -> PipelineConfig:
    return cast("PipelineConfig", SimpleNamespace(filter=FilterConfig.model_validate(wanted)))


def destination(*, merges: bool) -> Destination:
    capabilities = SimpleNamespace(merges=merges)
    return cast("Destination", SimpleNamespace(name="postgres", capabilities=capabilities))


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"tables": {"exclude": ["hidden"]}},
        {"columns": {"items": {"exclude": ["secret"]}}},
        {"operations": {"exclude": ["message", "schema"]}},
        {"rows": {"items": "id > 1"}},
    ],
)
def test_tables_columns_and_events_may_be_left_out(wanted: dict[str, Any]) -> None:
    check_filter(config(**wanted), destination(merges=True))


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"operations": {"exclude": ["delete"]}}, "rows would stay that the source has deleted"),
        ({"operations": {"exclude": ["truncate"]}}, "has truncated"),
        ({"operations": {"include": ["insert", "delete"]}}, "update does not pass"),
        ({"operations": {"exclude": ["read"]}}, "before the stream"),
        ({"operations": {"exclude": ["insert"]}}, "would be missing"),
    ],
)
def test_what_would_make_rows_wrong_is_refused(wanted: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        check_filter(config(**wanted), destination(merges=True))
    assert error.value.remedy
    check_filter(config(**wanted), destination(merges=False))


class _Session:
    """What the wrapper asks; the rest would be passed on as it is."""

    def subscribe(self) -> Subscription:
        return Subscription(("p",), "", "s", 7, tuple(NAMES.values()), ())

    def matching(self) -> list[TableDefinition]:
        return list(TABLES.values())

    def definitions(self, tables: Sequence[TableName]) -> list[TableDefinition]:
        return [table for oid, table in TABLES.items() if NAMES[oid] in tables]

    def definitions_of(self, tables: Sequence[int]) -> dict[int, TableDefinition]:
        return {oid: TABLES[oid] for oid in tables}

    def describer(self) -> Callable[[str], Mapping[int, TableDefinition]]:
        return lambda _document: TABLES

    def reconcile(self, _rules: object) -> Reconciled:
        return Reconciled(NAMES, NAMES, NAMES, NAMES, {})


class _Source:
    def copies(self, _file: object, _check: object) -> Any:
        return SimpleNamespace(define=_Session().definitions_of, snapshots=None)


def seen(*, merges: bool) -> tuple[Source, SourceSession]:
    source, session = cast("Source", _Source()), cast("SourceSession", _Session())
    return seen_by(destination(merges=merges), Filter(WANTED), None, source, session)


def left_out(found: TableDefinition) -> list[str]:
    return [column.name for column in found.columns if column.ignored]


def test_who_holds_rows_does_not_see_what_is_left_out() -> None:
    source, session = seen(merges=True)
    everything = list(NAMES.values())
    assert session.subscribe().tables == (NAMES[1], NAMES[2])
    assert [t.name for t in session.matching()] == ["items", "orders"]
    for found in (session.definitions(everything), session.matching()):
        assert list(map(left_out, found)) == [["secret"], []]
    for by_oid in (session.definitions_of([1, 2]), session.describer()("")):
        assert (left_out(by_oid[1]), left_out(by_oid[2])) == (["secret"], [])
    reconciled = session.reconcile({})
    for tables in (reconciled.published, reconciled.added, reconciled.moved):
        assert set(tables) == {1, 2}
    # What was followed before it was left out is let go.
    assert reconciled.gone([1, 3]) == {3}
    copies = source.copies(cast("Any", None), lambda: None)
    assert left_out(copies.define([1])[1]) == ["secret"]


def test_who_keeps_changes_sees_the_source_as_it_is() -> None:
    _, session = seen(merges=False)
    assert isinstance(session, _Session)


def test_a_key_that_does_not_pass_is_refused() -> None:
    wanted = FilterConfig.model_validate({"columns": {"items": {"exclude": ["id"]}}})
    parts = cast("Source", _Source()), cast("SourceSession", _Session())
    _, session = seen_by(destination(merges=True), Filter(wanted), None, *parts)
    with pytest.raises(ConfigError, match=r"column id of public\.items does not pass"):
        session.matching()


def test_rows_may_be_left_out_where_old_ones_are_sent_whole() -> None:
    wanted = Filter(
        FilterConfig.model_validate({"rows": {"items": "secret IS NULL"}}), holds_rows=True
    )
    with pytest.raises(ConfigError, match="has a condition") as error:
        wanted.definition(TABLES[1])
    assert "ALTER TABLE public.items REPLICA IDENTITY FULL" in error.value.remedy
    found = wanted.definition(replace(TABLES[1], replica_identity="f"))
    # Under another condition its rows are others: it is copied anew.
    assert found.rows
    assert wanted.marked(found) == found
    assert wanted.definition(TABLES[2]) == TABLES[2]
