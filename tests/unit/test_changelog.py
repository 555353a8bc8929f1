"""The log as a whole: one writer at a time, crashes, readers, retention."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog, LogIdentity
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.writer import LogWriter
from penstock.model.errors import ConfigError, Fenced, IdentityChanged, LogError
from penstock.model.lsn import Frontier
from penstock.source.postgres.capture.assemble import Assembler, Cut
from tests.log_sessions import Session
from tests.stream_model import (
    START,
    VERSIONS,
    build,
    describe,
)

IDENTITY = LogIdentity("7001", 1, "shop", "penstock_shop")
ONE_INSERT = ("transaction", None, [("insert", 0, (b"1", b"x", None))])


# -- one writer --------------------------------------------------------------------------------


def cut_of(*plan: tuple[object, ...], upto: int | None = None) -> Cut:
    assembler = Assembler(START, describe)
    assembler.add(build(list(plan)).messages()[:upto])
    return assembler.cut()


def publish(writer: LogWriter, cut: Cut) -> SegmentName:
    return writer.publish(cut.segment, cut.frontier, is_open=cut.is_open)


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(str(tmp_path / "log"))


def test_a_published_segment_is_listed_read_and_continued(log: ChangeLog) -> None:
    writer = LogWriter(log)
    assert (writer.epoch, writer.frontier) == (1, None)
    writer.start_at(START)
    cut = cut_of(ONE_INSERT)
    name = publish(writer, cut)
    assert (name.sequence, name.epoch, name.after) == (1, 1, START.commit_lsn)
    assert (name.frontier, name.rows, name.is_open) == (cut.frontier, 1, False)
    assert log.list().segments == (name,)
    assert log.read(str(name)).rows == cut.segment.rows
    assert log.read(str(name)).tables == cut.segment.tables

    second = LogWriter(log)
    assert (second.epoch, second.frontier) == (2, cut.frontier)
    assert publish(second, cut_of(ONE_INSERT, ONE_INSERT)).sequence == 2


def test_a_new_writer_fences_the_old_one(log: ChangeLog) -> None:
    old = LogWriter(log)
    publish(old, cut_of(ONE_INSERT))
    new = LogWriter(log)
    with pytest.raises(Fenced, match="taken over") as found:
        publish(old, cut_of(ONE_INSERT))
    assert found.value.remedy
    assert len(log.list().segments) == 1
    publish(new, cut_of(ONE_INSERT))


def test_epochs_go_on_when_their_files_are_gone(log: ChangeLog) -> None:
    """A log that was copied without its epochs folder must not start over at 1."""
    for _ in range(3):
        writer = LogWriter(log)
    publish(writer, cut_of(ONE_INSERT))
    assert [name for name, _size in log.epochs.list()] == ["000003"]
    log.epochs.delete("000003")
    assert LogWriter(log).epoch == 4


def test_a_writer_whose_file_was_swept_away_is_fenced(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new writer removes temporary files, also one that the old writer is about to rename."""
    old = LogWriter(log)
    replace = os.replace

    def take_over_first(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        LogWriter(log)
        replace(source, target)

    monkeypatch.setattr(os, "replace", take_over_first)
    with pytest.raises(Fenced):
        publish(old, cut_of(ONE_INSERT))
    assert log.list().segments == ()


def test_leftovers_of_a_crash_are_removed_at_start(log: ChangeLog) -> None:
    writer = LogWriter(log)
    writer.start_at(START)
    whole = publish(writer, cut_of(ONE_INSERT))
    half = cut_of(ONE_INSERT, ONE_INSERT, upto=-1)
    assert half.is_open
    for _ in range(2):
        tail = writer.publish(half.segment, whole.frontier, is_open=True)
        assert tail.is_unfinished
    folder = Path(log.segments.path)
    (folder / ".tmp-1234").write_bytes(b"torn")
    stale = whole._replace(epoch=0, checksum=1)
    (folder / str(stale)).write_bytes(b"stale")

    assert LogWriter(log).frontier == whole.frontier
    assert [path.name for path in folder.iterdir()] == [str(whole)]


def test_an_open_segment_that_ends_a_transaction_is_kept(log: ChangeLog) -> None:
    writer = LogWriter(log)
    writer.start_at(START)
    name = publish(writer, cut_of(ONE_INSERT, ONE_INSERT, upto=-1))
    assert name.is_open
    assert name.last > name.after
    assert LogWriter(log).frontier == name.frontier
    assert log.list().segments == (name,)


def test_files_that_are_no_segments_are_let_be(log: ChangeLog) -> None:
    name = publish(LogWriter(log), cut_of(ONE_INSERT))
    folder = Path(log.segments.path)
    (folder / "README").write_text("hands off")
    (folder / "sub").mkdir()
    assert log.list().segments == (name,)
    LogWriter(log)
    assert (folder / "README").exists()
    with pytest.raises(LogError, match="README"):
        log.read("README")


def test_a_missing_segment_is_an_error(log: ChangeLog) -> None:
    writer = LogWriter(log)
    names = [publish(writer, cut_of(ONE_INSERT)) for _ in range(3)]
    log.segments.delete(str(names[1]))
    with pytest.raises(LogError, match="missing in the middle"):
        log.list()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where the folder should be")
    with pytest.raises(LogError, match=str(tmp_path / "log")) as found:
        FolderStorage(str(tmp_path / "log" / "segments")).write("x", b"", durable=True)
    assert found.value.remedy


def test_a_place_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="ftp://"):
        ChangeLog("ftp://server/log")


# -- identity, readers, reports ----------------------------------------------------------------


def test_the_same_source_may_come_again(log: ChangeLog) -> None:
    log.claim_identity(IDENTITY)
    log.claim_identity(IDENTITY)


@pytest.mark.parametrize(
    "other",
    [
        LogIdentity("7002", 1, "shop", "penstock_shop"),
        LogIdentity("7001", 2, "shop", "penstock_shop"),
        LogIdentity("7001", 1, "store", "penstock_shop"),
        LogIdentity("7001", 1, "shop", "penstock_shop_2"),
    ],
)
def test_another_source_is_refused(log: ChangeLog, other: LogIdentity) -> None:
    log.claim_identity(IDENTITY)
    with pytest.raises(IdentityChanged) as found:
        log.claim_identity(other)
    ((name, value),) = set(vars(other).items()) - set(vars(IDENTITY).items())
    assert f"{name} {getattr(IDENTITY, name)}" in str(found.value)
    assert f"{name} {value}" in str(found.value)
    assert found.value.remedy


def test_after_a_promotion_a_log_goes_on_that_ends_before_it(log: ChangeLog) -> None:
    log.claim_identity(IDENTITY)
    session = Session(log, build([ONE_INSERT]))
    session.receive(100)
    session.publish()
    end = log.list().frontier
    assert end is not None
    promoted = replace(IDENTITY, timeline=2)
    with pytest.raises(IdentityChanged, match="left timeline 1 at"):
        log.claim_identity(promoted, {1: end.end_lsn - 1})
    with pytest.raises(IdentityChanged, match="not in the history"):
        log.claim_identity(promoted, {3: end.end_lsn})
    log.claim_identity(promoted, {1: end.end_lsn})
    # It is of that timeline from then on.
    log.claim_identity(promoted)
    with pytest.raises(IdentityChanged):
        log.claim_identity(IDENTITY)


def test_a_log_of_another_format_is_refused(log: ChangeLog) -> None:
    log.claim_identity(IDENTITY)
    log.root.write(
        "log.json", json.dumps({**IDENTITY.to_json(), "format": 9}).encode(), durable=True
    )
    with pytest.raises(LogError, match="format 9"):
        log.claim_identity(IDENTITY)


def test_readers_come_and_go(log: ChangeLog) -> None:
    assert log.all_readers() == {}
    assert log.reader("files") is None
    log.set_reader("files", Frontier(5, 6), wanted_lsn=9)
    log.set_reader("spark", START)
    assert set(log.all_readers()) == {"files", "spark"}
    state = log.reader("files")
    assert state is not None
    assert (state.frontier, state.wanted_lsn) == (Frontier(5, 6), 9)
    log.set_reader("files", Frontier(7, 8))
    assert log.all_readers()["files"].frontier == Frontier(7, 8)
    log.remove_reader("files")
    log.remove_reader("files")
    assert set(log.all_readers()) == {"spark"}


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "-x", "x" * 101, "a\n"])
def test_a_reader_s_name_must_be_a_plain_file_name(log: ChangeLog, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a reader"):
        log.set_reader(name, START)


@pytest.mark.parametrize("beside", ["files.json.bak", "files.json~", "README"])
def test_what_lies_beside_readers_is_none(log: ChangeLog, beside: str) -> None:
    """A copy that somebody made before he restored one would hold slot and log for ever."""
    log.set_reader("files", START, durable=True)
    log.readers.write(beside, log.readers.read_bytes("files.json") or b"", durable=False)
    assert log.all_readers().keys() == {"files"}


TORN = (b"", b'{"commit_lsn": "0/', b"{}", b"[]", b"\0" * 80)


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_reader_file_is_an_error_with_its_name(log: ChangeLog, torn: bytes) -> None:
    """Taken for absent, the reader would lose what it still needs to retention."""
    log.set_reader("files", START)
    log.readers.write("files.json", torn, durable=False)
    with pytest.raises(LogError, match=r"readers/files\.json is torn") as found:
        log.all_readers()
    # What to do where the destination remembers: its next commit writes the file.
    assert "delete both" in found.value.remedy
    log.readers.delete("files.json")
    assert log.all_readers() == {}
    log.set_reader("files", START)
    assert log.all_readers().keys() == {"files"}


@pytest.mark.parametrize("torn", [*TORN, None])
def test_a_position_that_nobody_else_knows_is_kept_twice(
    log: ChangeLog, torn: bytes | None
) -> None:
    log.set_reader("files", START, durable=True)
    log.set_reader("files", Frontier(7, 8), 9, durable=True)
    if torn is None:
        log.readers.delete("files.json")
    else:
        log.readers.write("files.json", torn, durable=False)
    state = log.reader("files")
    assert state is not None
    assert (state.frontier, state.wanted_lsn) == (Frontier(7, 8), 9)
    assert log.all_readers() == {"files": state}
    # The next commit heals it.
    log.set_reader("files", Frontier(10, 11), durable=True)
    log.readers.child("second").write("files.json", b"", durable=False)
    assert log.all_readers()["files"].frontier == Frontier(10, 11)
    log.readers.write("files.json", b"", durable=False)
    with pytest.raises(LogError, match=r"readers/files\.json is torn"):
        log.reader("files")
    log.remove_reader("files")
    assert log.all_readers() == {}


@pytest.mark.parametrize(
    ("there", "instead"),
    [('"0/7"', '"0/6"'), ('"wanted_lsn": 9', '"wanted_lsn": 8'), ("sha256", "sha257")],
)
def test_a_position_that_is_not_what_was_written_is_not_believed(
    log: ChangeLog, there: str, instead: str
) -> None:
    """It is JSON, and says a position: only its checksum tells."""
    log.set_reader("files", Frontier(7, 8), 9, durable=True)
    written = log.readers.read_bytes("files.json") or b""
    altered = written.replace(there.encode(), instead.encode(), 1)
    assert altered != written
    log.readers.write("files.json", altered, durable=False)
    state = log.reader("files")
    assert state is not None
    assert (state.frontier, state.wanted_lsn) == (Frontier(7, 8), 9)
    log.readers.child("second").write("files.json", altered, durable=False)
    with pytest.raises(LogError, match=r"readers/files\.json is torn or altered"):
        log.reader("files")


def test_a_position_of_an_earlier_version_has_no_checksum_and_is_believed(log: ChangeLog) -> None:
    old = {"commit_lsn": "0/7", "end_lsn": "0/8", "wanted_lsn": 0, "updated_at": 1.5, "by": "x"}
    log.readers.write("files.json", json.dumps(old).encode(), durable=False)
    state = log.reader("files")
    assert state is not None
    assert state.frontier == Frontier(7, 8)


def test_both_copies_are_on_the_disk_before_capture_finds_them(
    log: ChangeLog, disk_steps: list[str]
) -> None:
    log.set_reader("another", START, durable=True)
    disk_steps.clear()
    log.set_reader("files", START, durable=True)
    size, *rest = disk_steps
    assert rest == ["files.json", "folder", size, "files.json", "folder"]
    assert size.endswith(" bytes")
    disk_steps.clear()
    log.set_reader("files", START)
    assert disk_steps == ["files.json"], "a destination that remembers waits for no disk"


def test_a_copy_of_a_destination_that_came_to_remember_is_not_taken_for_the_truth(
    log: ChangeLog,
) -> None:
    log.set_reader("files", START, durable=True)
    log.set_reader("files", Frontier(7, 8))
    log.readers.delete("files.json")
    assert log.reader("files") is None


def test_what_is_said_to_do_about_torn_files_works(log: ChangeLog) -> None:
    """Each is damaged, then what the message says is done."""
    log.claim_identity(IDENTITY)
    log.set_tables({})
    log.set_capture_report({"state": "streaming"})
    actions: dict[str, Callable[[], object]] = {
        "log.json": lambda: log.claim_identity(IDENTITY),
        "tables.json": log.tables,
        "capture.json": log.capture_report,
    }
    for name, act in actions.items():
        log.root.write(name, b'{"', durable=False)
        with pytest.raises(LogError, match=f"{name} is torn") as found:
            act()
        assert "delete the file" in found.value.remedy
        log.root.delete(name)
        act()


def test_tables_and_reports_come_back(log: ChangeLog) -> None:
    assert not log.tables()
    assert log.capture_report() is None
    tables = {relation.oid: describe(relation) for (relation, *_) in VERSIONS}
    log.set_tables(tables)
    log.set_capture_report({"state": "streaming"})
    assert list(log.tables()) == list(tables.values())
    assert log.capture_report() == {"state": "streaming"}


def test_a_log_travels_to_executors(log: ChangeLog) -> None:
    name = publish(LogWriter(log), cut_of(ONE_INSERT))
    assert pickle.loads(pickle.dumps(log)).list().segments == (name,)  # noqa: S301


def test_a_file_url_is_a_folder(log: ChangeLog) -> None:
    name = publish(LogWriter(log), cut_of(ONE_INSERT))
    assert ChangeLog(f"file://{log.root.path}").list().segments == (name,)


def test_epochs_go_on_beyond_the_digits_of_a_name(log: ChangeLog) -> None:
    log.epochs.create("999999", b"")
    writer = LogWriter(log)
    assert writer.epoch == 1_000_000
    first = publish(writer, cut_of(ONE_INSERT))
    assert log.list().segments == (first,)
    log.read(str(first))
    # One more fences it, and knows of it also if the folder of epochs is lost.
    log.epochs.delete("1000000")
    successor = LogWriter(log)
    assert successor.epoch == 1_000_001
    with pytest.raises(Fenced):
        publish(writer, cut_of(ONE_INSERT))
    second = publish(successor, cut_of(ONE_INSERT))
    assert log.list().segments == (first, second)


def test_so_do_numbers_of_segments(log: ChangeLog) -> None:
    writer = LogWriter(log)
    writer._next = 10**12 - 1
    names = [publish(writer, cut_of(ONE_INSERT)) for _ in range(3)]
    assert [name.sequence for name in names] == [10**12 - 1, 10**12, 10**12 + 1]
    assert log.list().segments == tuple(names)
