"""Where in a log the schema changed, and that the pipeline's batches end before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from penstock.changelog.barrier import Barrier
from penstock.changelog.batch_size import BatchSize
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.log_batches import LogBatches
from penstock.changelog.schema_points import SchemaPoint, SchemaPoints
from penstock.changelog.segment import Segment
from penstock.changelog.writer import LogWriter
from penstock.model.lsn import NOTHING, Frontier, Position
from penstock.model.schema_message import PREFIX, SchemaMessage, SealKey
from penstock.source.postgres.capture.assemble import Assembler
from penstock.source.postgres.capture.messages import MessageFilter
from penstock.source.postgres.capture.relations import RelationDescriber
from penstock.spark.source import PenstockSource
from penstock.testing.change_builder import ChangeBuilder, Column, table

KEY = SealKey(b"i" * 64, b"o" * 64)
ITEMS = table("items", Column("id", "int4", key=True))


class LoggedBuilder(ChangeBuilder):
    """Writes what it builds into a log."""

    def __init__(self, log: ChangeLog, start: Frontier = NOTHING) -> None:
        super().__init__()
        self.log = log
        self.writer = LogWriter(log)
        self._assembler = Assembler(
            start, RelationDescriber(lambda _oids: {}), MessageFilter(["audit"], lambda: KEY)
        )

    def publish(self) -> None:
        cut = self._assembler.cut()
        self.frontier = cut.frontier
        self.writer.publish(
            cut.segment,
            cut.frontier,
            is_open=cut.is_open,
            has_schema_changes=cut.has_schema_changes,
        )

    def commit(self, *steps: Callable[[], None], publish: bool = True) -> int:
        """One transaction; its commit LSN."""
        with self.transaction():
            # As transaction() counts.
            commit_lsn = self._lsn - 0x20 + 0x1000
            for step in steps:
                step()
        if publish:
            self.publish()
        return commit_lsn

    def row(self) -> None:
        self.insert(ITEMS, "1")

    def change(self, *tables: int, **more: Any) -> Callable[[], None]:
        told = [{"table": oid, "document": {"oid": oid}} for oid in tables]
        value = {"tag": "ALTER TABLE", "version": 1, "tables": told, **more}
        return lambda: self.sealed(value)

    def sealed(self, value: dict[str, Any]) -> None:
        body = json.dumps({"xid": str(2**32 + self._xid), **value}).encode()
        self.message(PREFIX, KEY.seal(body) + body)


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(str(tmp_path / "log"))


@pytest.fixture
def source(log: ChangeLog) -> LoggedBuilder:
    return LoggedBuilder(log)


def batches(log: ChangeLog, start: Frontier = NOTHING) -> LogBatches:
    return LogBatches(log, start, BatchSize(2**27, 1))


def reached(found: LogBatches) -> Frontier:
    found.next()
    return found.frontier


def test_a_change_is_found_where_it_stands(source: LoggedBuilder) -> None:
    first = source.commit(source.row)
    second = source.commit(
        source.row, source.change(7, 8, version=4), source.row, source.change(8, rewrite=True)
    )
    third = source.commit(source.change(9, tag="DROP TABLE"))
    points, listing = SchemaPoints(source.log), source.log.list()
    assert points.next_after(listing, 0) == second
    assert points.next_after(listing, first) == second
    assert points.next_after(listing, second - 1) == second
    assert points.next_after(listing, second) == third
    assert points.next_after(listing, third) is None
    assert points.of(listing, first) == []
    micros = source.micros - 1_000_000
    documents = [(oid, json.dumps({"oid": oid})) for oid in (7, 8)]
    assert points.of(listing, second) == [
        SchemaPoint(
            Position(second, 1),
            micros,
            SchemaMessage("ALTER TABLE", 4, (documents[0], documents[1])),
        ),
        SchemaPoint(
            Position(second, 3),
            micros,
            SchemaMessage("ALTER TABLE", 1, (documents[1],), is_rewrite=True),
        ),
    ]
    (last,) = points.of(listing, third)
    assert (last.message.tag, last.commit_micros) == ("DROP TABLE", source.micros)


def test_messages_of_others_are_no_schema_changes(source: LoggedBuilder) -> None:
    def theirs() -> None:
        source.message("audit", b"{}")
        source.message(f"{PREFIX}s", b"no JSON at all")

    source.commit(theirs)
    # Also where one of ours brings the segment to be opened.
    lsn = source.commit(theirs, source.change(7), theirs)
    points, listing = SchemaPoints(source.log), source.log.list()
    assert points.next_after(listing, 0) == lsn
    assert [point.position for point in points.of(listing, lsn)] == [Position(lsn, 2)]


def test_which_tables_are_touched_between_two_positions(source: LoggedBuilder) -> None:
    one, two, three = (source.commit(source.change(*tables)) for tables in ((7,), (8, 9), (7, 10)))
    points, listing = SchemaPoints(source.log), source.log.list()
    everything = (7, 8, 9, 10)
    assert points.touching(listing, everything, 0, three + 1) == {7, 8, 9, 10}
    assert points.touching(listing, everything, one, three) == {8, 9}
    assert points.touching(listing, (9, 10), one, three) == {9}
    assert points.touching(listing, everything, one - 1, two) == {7}
    assert points.touching(listing, everything, three, three + 1) == frozenset()


def test_one_that_cannot_be_read_says_that_something_was_changed(source: LoggedBuilder) -> None:
    lsn = source.commit(lambda: source.sealed({"of": "a later version"}))
    (point,) = SchemaPoints(source.log).of(source.log.list(), lsn)
    assert point.message.failure == "its message cannot be read: KeyError('tag')"


def test_only_segments_with_changes_are_opened_and_each_once(
    source: LoggedBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = source.log.read

    def counted(name: str) -> Segment:
        opened.append(name)
        return read(name)

    monkeypatch.setattr(source.log, "read", counted)
    source.commit(source.row)
    lsn = source.commit(source.change(7))
    points = SchemaPoints(source.log)
    for _ in range(3):
        assert points.next_after(source.log.list(), 0) == lsn
    (_, changed) = source.log.list().segments
    assert opened == [str(changed)]
    later = source.commit(source.change(7))
    assert points.next_after(source.log.list(), lsn) == later
    assert len(opened) == 2
    # What retention removed is forgotten.
    for segment in source.log.list().segments[:2]:
        source.log.segments.delete(str(segment))
    assert points.next_after(source.log.list(), 0) == later
    assert len(points._known) == 1


def test_a_transaction_that_two_writers_received_has_its_changes_once(
    source: LoggedBuilder, log: ChangeLog
) -> None:
    source.commit(source.row, publish=False)
    with source.transaction():
        source.change(7)()
        source.publish()
        (first,) = log.list().segments
        assert first.is_open
        assert first.last == source.frontier.commit_lsn
    again = LoggedBuilder(log, source.frontier)
    again.writer.start_at(source.frontier)
    again.commit(again.row, publish=False)
    twice = again.commit(again.change(7), again.change(8))
    # It is known before it is complete.
    (begun,) = SchemaPoints(log).of(replace(log.list(), segments=(first,)), twice)
    assert begun.position.ordinal == 0
    listing = log.list()
    assert len(listing.segments) == 2
    found = SchemaPoints(log).of(listing, twice)
    assert [point.position.ordinal for point in found] == [0, 1]


# -- the limit of batches ------------------------------------------------------------------------


def test_a_batch_ends_before_a_transaction_that_changes_tables(source: LoggedBuilder) -> None:
    source.commit(source.row)
    last = source.commit(source.row)
    before = source.frontier
    lsn = source.commit(source.row, source.change(7), source.row)
    source.commit(source.row)
    found = batches(source.log)
    frontier = reached(found)
    assert frontier.commit_lsn >= last
    assert frontier.end_lsn == lsn > before.end_lsn
    # There it stays: the driver brings what comes next.
    assert found.next() is None
    assert found.frontier == frontier


def test_the_limit_is_gone_once_the_driver_brought_the_change(source: LoggedBuilder) -> None:
    lsn = source.commit(source.change(7))
    last = source.commit(source.row)
    assert reached(batches(source.log, Frontier(lsn, lsn + 8))) == source.frontier
    assert source.frontier.commit_lsn == last


def test_readers_that_are_no_pipeline_pass_it(source: LoggedBuilder) -> None:
    source.commit(source.row)
    source.commit(source.change(7))
    source.commit(source.row)
    reader = PenstockSource({"path": source.log.root.path}).streamReader(StructType())
    assert Frontier.from_json(reader.latestOffset()) == source.frontier


def test_of_two_limits_the_lower_one_counts(source: LoggedBuilder) -> None:
    first = source.commit(source.row)
    lsn = source.commit(source.change(7))
    with Barrier(source.log, first):
        assert reached(batches(source.log)).end_lsn == first
    with Barrier(source.log, lsn + 0x800):
        assert reached(batches(source.log)).end_lsn == lsn


transactions = st.lists(st.lists(st.sampled_from(["row", "change"]), max_size=3), min_size=1)


@given(transactions, st.lists(st.booleans(), min_size=50, max_size=50))
def test_no_batch_holds_a_schema_change(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[list[str]], cuts: list[bool]
) -> None:
    """However the log is cut into segments, batches and changes take turns until it is read."""
    log = ChangeLog(str(tmp_path_factory.mktemp("log")))
    source = LoggedBuilder(log)
    changed = []
    for steps, is_cut in zip(kinds, cuts, strict=False):
        made = [source.row if step == "row" else source.change(7) for step in steps]
        lsn = source.commit(*made, publish=is_cut)
        changed += [lsn] if "change" in steps else []
    source.publish()
    start, brought = NOTHING, []
    points = SchemaPoints(log)
    for _ in range(2 * len(kinds) + 2):
        end = reached(batches(log, start))
        assert not [lsn for lsn in changed if start.commit_lsn < lsn <= end.commit_lsn]
        start = end
        point = points.next_after(log.list(), start.commit_lsn)
        if point is None:
            break
        # Now the driver would bring it.
        assert start.end_lsn == point
        brought.append(point)
        start = Frontier(point, point + 1)
    assert brought == changed
    assert reached(batches(log, start)) == max(source.frontier, start)


def test_which_stretches_of_a_transaction_have_rows(source: LoggedBuilder) -> None:
    lsn = source.commit(source.change(7), source.row, source.row, source.change(7))
    points, listing = SchemaPoints(source.log), source.log.list()
    first, second = (point.position.ordinal for point in points.of(listing, lsn))
    (segment,) = map(str, listing.segments)
    stretches = ((0, first), (first + 1, second), (second + 1, 10**9))
    assert [points.has_rows([segment], lsn, *stretch) for stretch in stretches] == [
        *(False, True, False)
    ]
    assert points.has_rows([segment, "another"], lsn, *stretches[0]), "it cannot be known"
