"""The `search` destination where things go wrong, on real servers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.destination.contract import SchemaChange
from penstock.destination.search import carry_over
from penstock.destination.search.client import SearchClient
from penstock.destination.search.destination import SearchDestination
from penstock.destination.search.documents import SearchDocuments
from penstock.destination.search.generations import Generations
from penstock.destination.search.scan import scan
from penstock.model.errors import DestinationError, DestinationUnavailable, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.watermarks import Watermarks
from penstock.testing import frozen
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.chunk_rows import ChunkRows, copy_chunks
from penstock.testing.contract.deliveries import (
    ITEMS,
    NOTES,
    assert_delivered,
    definition,
    deliver,
    deliver_cut,
    on_executor,
    opened,
    reference,
)
from tests.contract.test_family_histories import KIND, NAME, PAIR, rows_left
from tests.contract.test_search import SearchAdapter
from tests.elasticsearch_server import Elasticsearch7Server, Elasticsearch8Server
from tests.opensearch_server import OpenSearchServer
from tests.row_histories import ALL, KeyedHistory, Step, batches, steps
from tests.search_documents import shown_documents
from tests.search_proxy import Faults, SearchProxy
from tests.search_server import SearchServer


@pytest.fixture
def adapter(search_server: SearchServer) -> SearchAdapter:
    return SearchAdapter(search_server.url)


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


@pytest.fixture
def proxy(search_server: SearchServer) -> Iterator[SearchProxy]:
    with SearchProxy(search_server.port) as proxy:
        yield proxy


def options_with(adapter: SearchAdapter, **options: Any) -> None:
    adapter.options = adapter.options.model_copy(update=options)


def start(adapter: SearchAdapter) -> SearchDestination:
    destination = opened(adapter)
    assert isinstance(destination, SearchDestination)
    return destination


def shown(adapter: SearchAdapter, table: str) -> list[dict[str, Any]]:
    return shown_documents(adapter.options, f"{adapter.pipeline}.public.{table}")


def test_documents_that_are_rejected_and_answers_that_are_lost(
    adapter: SearchAdapter, proxy: SearchProxy, builder: ChangeBuilder
) -> None:
    options_with(adapter, url=proxy.url, bulk_size=2000)
    destination = start(adapter)
    proxy.set(Faults(documents=0.3, requests=0.1, answers=0.1), 7)
    changes = []
    for number in range(3):
        with builder.transaction():
            for row in range(100):
                builder.insert(ITEMS, str(100 * number + row), f"row {row}")
            builder.update(ITEMS, str(100 * number), f"changed {number}")
            builder.delete(ITEMS, key=[str(100 * number + 1), None])
        changes.append(deliver_cut(destination, builder))
    assert proxy.counts["documents"]
    assert proxy.counts["lost"]
    proxy.set(Faults())
    assert_delivered(adapter, reference(*changes))


def test_requests_that_are_too_large_are_sent_in_halves(
    adapter: SearchAdapter, proxy: SearchProxy, builder: ChangeBuilder
) -> None:
    options_with(adapter, url=proxy.url)
    destination = start(adapter)
    proxy.set(Faults(largest=6000))
    with builder.transaction():
        for row in range(60):
            builder.insert(ITEMS, str(row), "x" * 500)
        builder.insert(ITEMS, "60", "y" * 7000)
    changes = builder.cut()
    deliver(destination, builder.frontier, [changes])
    assert proxy.counts["too_large"]
    proxy.set(Faults())
    rows = adapter.rows((ITEMS.schema, ITEMS.name))
    assert rows == Counter(frozen({"id": str(row), "name": "x" * 500}) for row in range(60))
    assert destination.dead_letters() == {"public.items": 1}


def test_a_refused_document_is_kept_and_what_it_was_before_goes(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    options_with(adapter, mappings={"public.items": {"name": {"type": "integer"}}})
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "10")
        builder.insert(ITEMS, "2", "20")
    deliver_cut(destination, builder)
    with builder.transaction():
        builder.update(ITEMS, "1", "no number")
    refused = builder.cut()
    for _ in range(2):  # a batch that comes again
        deliver(destination, builder.frontier, [refused])
    assert adapter.rows((ITEMS.schema, ITEMS.name)) == Counter([frozen({"id": "2", "name": "20"})])
    assert destination.dead_letters() == {"public.items": 1}
    options_with(adapter, refused="table")
    with pytest.raises(TableRefused, match=r"public\.items: the document 1 at .* was refused"):
        deliver(start(adapter), builder.frontier, [builder_update(builder)])


def builder_update(builder: ChangeBuilder) -> Any:
    with builder.transaction():
        builder.update(ITEMS, "1", "no number either")
    return builder.cut()


def test_a_writer_from_before_a_copy_gets_nothing_in(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "old")
    before = deliver_cut(destination, builder)
    stale = on_executor(destination.writer())
    stale_chunk = destination.chunk_writer(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    assert [row["name"] for row in shown(adapter, "items")] == ["old"], "readers see what was there"
    with pytest.raises(TableRefused, match="no longer the one that is written"):
        stale.write([before])
    with pytest.raises(TableRefused, match="no longer the one that is written"):
        stale_chunk.write(ChunkRows(ITEMS, "0", [("5", "of an earlier copy")]))
    copy_chunks(destination, ChunkRows(ITEMS, "0", [("2", "new")], builder.frontier))
    destination.finish_copy(definition(ITEMS))
    assert [row["name"] for row in shown(adapter, "items")] == ["old"]
    destination.complete_table(definition(ITEMS))
    assert [row["name"] for row in shown(adapter, "items")] == ["new"]


def test_a_writer_from_before_a_truncate_brings_nothing_back(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "old")
    before = deliver_cut(destination, builder)
    stale = destination.writer()
    with builder.transaction():
        builder.truncate(ITEMS)
    truncated = deliver_cut(destination, builder)
    # It goes on in the index that follows, and has nothing that is new enough for it.
    on_executor(stale).write([before])
    assert shown(adapter, "items") == []
    with builder.transaction():
        builder.insert(ITEMS, "2", "new")
    after = builder.cut()
    on_executor(stale).write([truncated, after])
    assert [row["name"] for row in shown(adapter, "items")] == ["new"]


def test_rows_that_are_truncated_while_their_changes_are_replayed(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    destination = start(adapter)
    destination.truncate_table(definition(ITEMS))
    early = ChunkRows(ITEMS, "0", [("1", "early")], Frontier(0x10, 0x18))
    with builder.transaction():
        builder.insert(ITEMS, "3", "of the same transaction")
        builder.truncate(ITEMS)
        builder.insert(ITEMS, "4", "behind it")
    changes = builder.cut()
    late = ChunkRows(ITEMS, "1", [("2", "late")], builder.frontier)
    copy_chunks(destination, early)
    copy_chunks(destination, late, again=True)
    destination.finish_copy(definition(ITEMS))
    destination.replaying([ITEMS.oid])
    for _ in range(2):
        writer = on_executor(destination.catchup_writer([ITEMS.oid]))
        destination.commit([writer.write([changes])], Watermarks(builder.frontier))
    destination.replaying([])
    destination.complete_table(definition(ITEMS))
    assert sorted(row["name"] for row in shown(adapter, "items")) == ["behind it", "late"]


@pytest.mark.parametrize(
    "step", [(SearchDocuments, "_remove_older"), (Generations, "raise_floor")], ids=lambda s: s[1]
)
def test_a_truncate_in_a_replay_that_was_cut_off_is_done_by_the_next_driver(
    adapter: SearchAdapter,
    builder: ChangeBuilder,
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[type, str],
) -> None:
    destination = start(adapter)
    destination.truncate_table(definition(ITEMS))
    early = ChunkRows(ITEMS, "0", [("1", "early")], Frontier(0x10, 0x18))
    with builder.transaction():
        builder.truncate(ITEMS)
        builder.insert(ITEMS, "4", "behind it")
    changes = builder.cut()
    copy_chunks(destination, early)
    destination.finish_copy(definition(ITEMS))
    destination.replaying([ITEMS.oid])

    def dies(*_given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*step, dies)
        with pytest.raises(KeyboardInterrupt):
            on_executor(destination.catchup_writer([ITEMS.oid])).write([changes])
    again = start(adapter)
    again.replaying([ITEMS.oid])
    writer = on_executor(again.catchup_writer([ITEMS.oid]))
    again.commit([writer.write([changes])], Watermarks(builder.frontier))
    again.replaying([])
    again.complete_table(definition(ITEMS))
    assert [row["name"] for row in shown(adapter, "items")] == ["behind it"]


def test_a_document_that_somebody_deleted_refuses_the_table(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "large")
    deliver_cut(destination, builder)
    path = f"{adapter.pipeline}.public.items.g1.write/_doc/1"
    SearchClient(adapter.options).call("DELETE", path, doing="deleting")
    with builder.transaction():
        builder.update(ITEMS, "1", UNSET)
    with pytest.raises(TableRefused, match="the row with the key 1 leaves columns as they were"):
        deliver_cut(destination, builder)


def test_a_row_that_was_completed_and_then_deleted_may_come_again(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "large")
    deliver_cut(destination, builder)
    with builder.transaction():
        builder.update(ITEMS, "1", UNSET)
    updated = builder.cut()
    with builder.transaction():
        builder.delete(ITEMS, key=["1", None])
    deleted = builder.cut()
    for _ in range(2):
        deliver(destination, builder.frontier, [updated, deleted])
        assert adapter.rows((ITEMS.schema, ITEMS.name)) == Counter()


def test_a_large_transaction_that_changes_a_row_again_and_again(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    destination = start(adapter)
    with builder.transaction():
        for row in range(2100):
            builder.insert(ITEMS, str(row), "first")
        first = builder.cut()
        builder.update(ITEMS, "7", "second")
        builder.delete(ITEMS, key=["8", None])
        builder.update(ITEMS, "9", UNSET)
        second = builder.cut()
        builder.update(ITEMS, "7", "third")
        builder.insert(ITEMS, "8", "again")
        builder.delete(ITEMS, key=["9", None])
    third = builder.cut()
    for runs in ([first, second, third], [first], [second], [third]):
        deliver(destination, builder.frontier, runs)
    found = {row[0][1]: row[1][1] for row in adapter.rows((ITEMS.schema, ITEMS.name))}
    assert len(found) == 2099
    assert (found["7"], found["8"]) == ("third", "again")


CHANGED = replace(
    ITEMS, columns=(ITEMS.columns[0], Column("title", "text"), Column("price", "text"))
)


def test_other_columns_come_into_a_new_index_and_once(
    adapter: SearchAdapter, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    deliver_cut(destination, builder)
    before, after = definition(ITEMS), definition(CHANGED)
    columns = list(after.columns)
    columns[2] = replace(columns[2], attnum=3, missing='{"its"}')
    change = SchemaChange(
        Position(builder.frontier.commit_lsn + 8, 0),
        0,
        "ALTER TABLE",
        (TableChange(before, replace(after, columns=tuple(columns))),),
    )
    writes = destination.ledger.write

    def dies(driver: int, notes: Any) -> None:
        if notes:
            raise KeyboardInterrupt
        writes(driver, notes)

    monkeypatch.setattr(destination.ledger, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        destination.section_writer([change])
    again = start(adapter)
    again.commit_sections([change], Watermarks(builder.frontier))
    assert shown(adapter, "items") == [{"id": 1, "title": "a", "price": "its"}]
    assert [g.number for g in _generations(again).found(f"{adapter.pipeline}.public.items")] == [2]


@contextmanager
def indexes_make_themselves(adapter: SearchAdapter) -> Iterator[None]:
    """As servers have it that nobody has told otherwise."""

    def let(value: str | None) -> None:
        body = {"persistent": {"action.auto_create_index": value}}
        SearchClient(adapter.options).call("PUT", "_cluster/settings", body, doing="setting up")

    let("true")
    try:
        yield
    finally:
        let(None)


def test_a_driver_that_is_replaced_while_it_carries_over_makes_no_index(
    adapter: SearchAdapter, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one removes what it has begun; what it still sends would make an index anew, with
    rows that nobody ever deletes.
    """
    destination = start(adapter)
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    deliver_cut(destination, builder)
    position = Position(builder.frontier.commit_lsn + 8, 0)
    changed = TableChange(definition(ITEMS), definition(CHANGED))
    change = SchemaChange(position, 0, "ALTER TABLE", (changed,))

    hits = list(scan(SearchClient(adapter.options), f"{adapter.pipeline}.public.items.g1"))

    def replaced(*_: object) -> list[list[dict[str, Any]]]:
        monkeypatch.undo()
        start(adapter).commit_sections([change], Watermarks(builder.frontier))
        return hits

    monkeypatch.setattr(carry_over, "scan", replaced)
    with (
        indexes_make_themselves(adapter),
        pytest.raises(DestinationUnavailable, match="another driver"),
    ):
        destination.section_writer([change])
    name = f"{adapter.pipeline}.public.items"
    answer = SearchClient(adapter.options).call("GET", f"{name}.g*", doing="looking")
    assert list(answer.body) == [f"{name}.g3"]
    assert list(answer.body[f"{name}.g3"]["aliases"]) == [name, f"{name}.g3.write"]


def _generations(destination: SearchDestination) -> Generations:
    return Generations(SearchClient(destination.options), destination.ledger.identity)


PAPERS = table("papers", Column("id", "int8", key=True), Column("body", "jsonb"))


def test_json_that_is_deep_or_has_a_long_value(
    adapter: SearchAdapter, search_server: SearchServer, builder: ChangeBuilder
) -> None:
    destination = opened(adapter, PAPERS)
    assert isinstance(destination, SearchDestination)
    with builder.transaction():
        builder.insert(PAPERS, "1", '{"gone": 1}')
        builder.truncate(PAPERS)
        builder.insert(PAPERS, "2", '{"a": ' * 100 + '"found"' + "}" * 100)
        builder.insert(PAPERS, "3", json.dumps({"short": "found", "long": "x" * 100_000}))
    deliver_cut(destination, builder)
    # OpenSearch's flat_object has no way to leave a long value out of the index.
    taken = [2] if isinstance(search_server, OpenSearchServer) else [2, 3]
    assert sorted(row["id"] for row in shown(adapter, "papers")) == taken
    assert destination.dead_letters() == ({} if 3 in taken else {"public.papers": 1})
    found = {"query": {"multi_match": {"query": "found", "fields": ["body"]}}}
    path = f"{adapter.pipeline}.public.papers/_search"
    answer = SearchClient(adapter.options).call("POST", path, found, doing="searching")
    assert sorted(int(hit["_id"]) for hit in answer.body["hits"]["hits"]) == taken


def test_names_of_columns_that_no_field_can_have(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    names = ["_ignored_source", "_source", "_primary_term", "a. .b", "a..b", " ", "a b"]
    odd = table("odd", Column("id", "int8", key=True), *(Column(name, "text") for name in names))
    destination = opened(adapter, odd)
    assert isinstance(destination, SearchDestination)
    with builder.transaction():
        builder.insert(odd, "1", *names)
    deliver_cut(destination, builder)
    assert [sorted(row.values(), key=str) for row in shown(adapter, "odd")] == [
        sorted([1, *names], key=str)
    ]
    assert destination.dead_letters() == {}


def test_two_tables_of_one_name_are_refused(adapter: SearchAdapter) -> None:
    options_with(adapter, index="{pipeline}")
    with pytest.raises(TableRefused, match="is written for another table or another pipeline"):
        start(adapter)


def test_what_another_ledger_wrote_is_replaced_once_it_is_copied(
    adapter: SearchAdapter, builder: ChangeBuilder
) -> None:
    with builder.transaction():
        builder.insert(NOTES, "1", "of a pipeline that was destroyed")
    deliver_cut(first := start(adapter), builder)
    assert first.forget() == ["its ledger"]
    destination = start(adapter)
    assert destination.has_foreign_rows(definition(NOTES))
    destination.truncate_table(definition(NOTES))
    copy_chunks(destination, ChunkRows(NOTES, "0", [("2", "new")], Frontier(0x10, 0x18)))
    destination.complete_table(definition(NOTES))
    assert [row["body"] for row in shown(adapter, "notes")] == ["new"]
    assert not destination.has_foreign_rows(definition(NOTES))


def test_blocks_are_named(adapter: SearchAdapter, builder: ChangeBuilder) -> None:
    destination = start(adapter)
    assert destination.check() == ()
    client = SearchClient(adapter.options)
    path = f"{adapter.pipeline}.public.items.g1/_settings"
    client.call("PUT", path, {"index.blocks.write": True}, doing="blocking")
    try:
        with pytest.raises(DestinationError, match=r"items\.g1: index write"):
            destination.check()
    finally:
        client.call("PUT", path, {"index.blocks.write": None}, doing="letting go")


@pytest.mark.release
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=steps(30, (*ALL, "truncate")))
def test_any_history(search_server: SearchServer, plan: list[Step]) -> None:
    adapter = SearchAdapter(search_server.url)
    builder = ChangeBuilder()
    history = batches(plan, KeyedHistory(KIND, builder), builder)
    destination = adapter.make()
    destination.open()
    destination.prepare([definition(PAIR)])
    for number, batch in enumerate(history):
        for _ in range(2):
            on_executor(destination.writer()).write(
                [run for task in batch.tasks for run in task][:1]
            )
            deliver(destination, Frontier(number, number), *batch.tasks)
    runs = [run for batch in history for task in batch.tasks for run in task]
    assert adapter.rows(NAME) == rows_left(runs)


@pytest.mark.release
@pytest.mark.parametrize("kind", [OpenSearchServer, Elasticsearch7Server, Elasticsearch8Server])
def test_a_server_that_dies_between_batches(
    kind: type[SearchServer], builder: ChangeBuilder
) -> None:
    with kind() as server:
        adapter = SearchAdapter(server.url)
        destination = start(adapter)
        changes = []
        for number in range(3):
            with builder.transaction():
                builder.insert(ITEMS, str(number), "row")
                if number:
                    builder.delete(ITEMS, key=[str(number - 1), None])
            changes.append(deliver_cut(destination, builder))
            server.kill()
            server.start()
        for older in changes:
            deliver(destination, builder.frontier, [older])
        assert_delivered(adapter, reference(*changes))
        assert destination.committed() == Watermarks(builder.frontier)
