"""Offsets of the Spark source, in the order in which Spark asks for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.writer import LogWriter
from penstock.model.errors import LogError
from penstock.model.lsn import Frontier, format_lsn
from penstock.source.postgres.capture.assemble import HEADER, Assembler
from penstock.spark.source import PenstockSource, PenstockStreamReader, _Share
from tests.stream_model import START, build, describe

TRANSACTION = ("transaction", None, [("insert", 0, (b"1", b"x", None))])


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    """Four transactions, a segment each."""
    log = ChangeLog(str(tmp_path / "log"))
    writer = LogWriter(log)
    writer.start_at(START)
    assembler = Assembler(START, describe)
    for message in build([TRANSACTION] * 4).messages():
        assembler.add([message])
        if message[HEADER] == ord("C"):
            cut = assembler.cut()
            writer.publish(cut.segment, cut.frontier, is_open=cut.is_open)
    return log


def reader(log: ChangeLog, start: Frontier) -> PenstockStreamReader:
    options = {
        "path": log.root.path,
        "start": format_lsn(start.commit_lsn),
    }
    return PenstockSource(options).streamReader(StructType())


def test_the_first_batch_begins_at_the_start_not_at_the_log_s_beginning(log: ChangeLog) -> None:
    """Spark 4.1 asks for the latest offset first, and for the initial one afterwards."""
    ends = [segment.frontier for segment in log.list().segments]
    stream = reader(log, ends[1])
    latest = stream.latestOffset()
    assert Frontier.from_json(latest) == ends[-1]
    initial = stream.initialOffset()
    assert Frontier.from_json(initial).commit_lsn == ends[1].commit_lsn
    (share,) = stream.partitions(initial, latest)
    assert isinstance(share, _Share)
    assert [p.segment for p in share.pointers] == [str(s) for s in log.list().segments[2:]]


def test_what_every_reader_has_passed_may_be_gone(log: ChangeLog) -> None:
    first, *_, last = log.list().segments
    log.segments.delete(str(first))
    assert Frontier.from_json(reader(log, first.frontier).latestOffset()) == last.frontier


def test_a_gap_is_an_error(log: ChangeLog) -> None:
    log.segments.delete(str(log.list().segments[0]))
    with pytest.raises(LogError, match="lacks what was committed"):
        reader(log, START).latestOffset()


def test_a_stream_s_process_loads_little() -> None:
    """Spark starts one for each query, and several others: what is heavy would be most of it."""
    code = "import sys, penstock.spark.source; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "penstock.changelog.chain" in modules
    heavy = {"pandas", "psycopg", "pydantic", "pyarrow.compute", "penstock.config"}
    assert not heavy & {*modules}
