"""What the stream does about errors, with everything around it replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog, ReaderState
from penstock.destination.contract import Receipt
from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.destination.protocols import TablesFailAlone
from penstock.metrics.written import JobResult
from penstock.model.errors import (
    DestinationUnavailable,
    LogUnavailable,
    PenstockError,
    SegmentGone,
    StoreUnavailable,
    TableRefused,
)
from penstock.model.lsn import NOTHING
from penstock.model.table_state import Errored, TableState
from penstock.model.watermarks import Watermarks
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.stream import Stream
from penstock.pipeline.tables.registry import TableRegistry
from penstock.store import MemoryStore
from tests.run_context import run_context
from tests.unit.test_copy_manager import TABLE


class FailsAlone(DiscardDestination, TablesFailAlone):
    """It can do without a table."""


class AwayNow(ChangeLog):
    """Its storage does not answer once it is away."""

    is_away = False

    def reader(self, name: str) -> ReaderState | None:
        if self.is_away:
            raise LogUnavailable("away")
        return super().reader(name)

    def list(self) -> Any:
        if self.is_away:
            raise LogUnavailable("away")
        return super().list()


class Late(MemoryStore):
    """Does not answer the first time that a table is to be set aside."""

    was_away = False

    def update_table_state(self, table: int, state: TableState) -> None:
        if not self.was_away:
            self.was_away = True
            raise StoreUnavailable("away")
        super().update_table_state(table, state)


def run(log: ChangeLog, store: MemoryStore, *errors: PenstockError) -> None:
    """A run that meets these errors, one after another, and is stopped then."""
    destination = FailsAlone(DiscardOptions(), "items")
    session = SimpleNamespace(seen=lambda: None)
    context = run_context("items", log=log, store=store, session=session, destination=destination)
    tables = TableRegistry(store, merges=False, copies=False)
    left = [*errors]

    def follow(_may_go_on: object) -> bool:
        if isinstance(log, AwayNow):
            log.is_away = True
        raise left.pop(0)

    parts: Any = SimpleNamespace(
        tables=tables,
        committer=BatchCommitter(context),
        schema=SimpleNamespace(follow=follow),
        supervisor=SimpleNamespace(turn=lambda _stopping: None),
    )
    Stream(context, parts, NOTHING, lambda: not left, 0).run()


@pytest.mark.parametrize(
    "error", [LogUnavailable("away"), SegmentGone("gone", segment="s")], ids=["log", "segment"]
)
def test_a_log_that_is_away_is_waited_for(tmp_path: Path, error: PenstockError) -> None:
    """Also where it would be asked what the error means: a destination does not remember."""
    store = MemoryStore("items")
    store.open()
    run(AwayNow(str(tmp_path)), store, error)


def test_a_table_is_set_aside_though_the_store_was_away(tmp_path: Path) -> None:
    """It comes again, and is refused again."""
    store = Late("items")
    store.open()
    TableRegistry(store, merges=False, copies=False).enrol([TABLE], 0)
    refused = TableRefused("no", table=TABLE.oid)
    run(ChangeLog(str(tmp_path)), store, refused, refused)
    assert isinstance(store.get_table_state(TABLE.oid), Errored)


def test_a_destination_that_failed_beside_the_stream_is_asked_where_it_stands(
    tmp_path: Path,
) -> None:
    """What is committed for copied tables waits for that. Who asks it is the stream, which would
    commit nothing for as long as nobody writes to the source.
    """

    class Lost(FailsAlone):
        def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
            raise DestinationUnavailable("the answer was lost")

    looks: list[float] = []
    store = MemoryStore("items")
    store.open()
    context = run_context(
        "items",
        log=ChangeLog(str(tmp_path)),
        destination=Lost(DiscardOptions(), "items"),
        engine=SimpleNamespace(check=lambda: None),
    )
    committer = BatchCommitter(context)
    committer.take_up(NOTHING, (), (), {})
    parts: Any = SimpleNamespace(
        tables=TableRegistry(store, merges=False, copies=True),
        committer=committer,
        schema=SimpleNamespace(is_due=lambda: False),
        supervisor=SimpleNamespace(turn=lambda _stopping: None),
    )
    stream = Stream(context, parts, NOTHING, lambda: len(looks) > 9, 0)
    stream._query = lambda: nullcontext(SimpleNamespace(wait=looks.append))  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(DestinationUnavailable):
        committer.commit_aside(JobResult(), {})
    assert not stream._run_query()
    assert len(looks) <= 1, "then the next query begins with the question"
