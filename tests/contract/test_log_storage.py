"""What a change log asks of its storage: a folder and an object store do the same."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.store import LocalStore

from penstock.changelog import chain
from penstock.changelog.changelog import BARRIERS, ChangeLog, LogIdentity
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.segment_run import read_runs
from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.object_check import check_objects
from penstock.changelog.storage.objects import CHANGE_LOG
from penstock.changelog.view import LogView
from penstock.changelog.writer import LogWriter
from penstock.model.errors import ConfigError, Fenced, LogError, LogUnavailable
from penstock.model.lsn import Frontier
from penstock.objects import bucket
from penstock.objects.bucket import Bucket, opened
from penstock.source.postgres.capture.assemble import HEADER, Assembler, Cut
from tests.objects_proxy import Decide, Fault, Kind
from tests.objects_server import SECRET, ObjectServer
from tests.stream_model import START, Change, MemoryStorage, build, describe, read_back

TRANSACTION = ("transaction", None, [("insert", 0, (b"1", b"x", None))])


@pytest.fixture(params=["folder", "objects"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> ChangeLog:
    if request.param == "folder":
        return ChangeLog(str(tmp_path / "log"))
    server: ObjectServer = request.getfixturevalue("object_server")
    return ChangeLog(f"{server.place()}/shop/log", server.options)


@pytest.fixture
def object_log(object_server: ObjectServer) -> ChangeLog:
    return ChangeLog(f"{object_server.place()}/shop/log", object_server.options)


@pytest.fixture
def storage(log: ChangeLog) -> Storage:
    return log.segments


# -- files ---------------------------------------------------------------------------------------


def test_what_is_written_is_there_whole_and_replaces_what_was_there(storage: Storage) -> None:
    assert storage.read("a") is None
    assert storage.read_bytes("a") is None
    assert not storage.exists("a")
    storage.write("a", b"one", durable=True)
    storage.write("a", memoryview(b"three"), durable=False)
    assert storage.read_bytes("a") == b"three"
    data = storage.read("a")
    assert data is not None
    assert data.to_pybytes() == b"three"
    assert storage.exists("a")
    # A pyarrow buffer, as segments come, and one without a byte.
    storage.write("b", data, durable=True)
    storage.write("empty", b"", durable=True)
    assert dict(storage.list()) == {"a": 5, "b": 5, "empty": 0}


def test_lists_begin_anywhere_and_leave_folders_out_but_one(storage: Storage) -> None:
    assert list(storage.list()) == []
    for name in ("1", "2", "3"):
        storage.write(name, b"x", durable=False)
    storage.child(BARRIERS).write("b", b"", durable=False)
    storage.child("others").write("o", b"", durable=False)
    assert sorted(storage.list()) == [("1", 1), ("2", 1), ("3", 1)]
    assert sorted(storage.list("1")) == [("2", 1), ("3", 1)]
    assert sorted(storage.list("2", and_in=BARRIERS)) == [("3", 1), (f"{BARRIERS}/b", 0)]
    assert storage.entries() == {"1", "2", "3", BARRIERS, "others"}


def test_only_one_creates_a_file(storage: Storage) -> None:
    started = threading.Barrier(8)

    def create(number: int) -> bool:
        started.wait()
        return storage.create("000001", f"writer {number}".encode())

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(create, range(8)))
    assert sum(made) == 1
    assert storage.read_bytes("000001") == f"writer {made.index(True)}".encode()
    assert not storage.create("000001", b"somebody else")


def test_what_is_deleted_is_gone_and_may_be_gone_already(storage: Storage) -> None:
    storage.delete()
    storage.delete("never there")
    for name in ("a", "b", "c"):
        storage.write(name, b"", durable=False)
    storage.delete("a", "gone", "b")
    assert dict(storage.list()) == {"c": 0}


def test_it_goes_as_a_whole(log: ChangeLog) -> None:
    log.set_tables({})
    log.segments.write("a", b"", durable=False)
    log.readers.child("second").write("b", b"", durable=False)
    assert log.root.entries() == {"segments", "readers", "tables.json"}
    log.root.destroy()
    assert log.root.entries() == set()


def test_it_travels_to_executors_and_shows_no_secret(log: ChangeLog) -> None:
    log.segments.write("a", b"x", durable=False)
    again: ChangeLog = pickle.loads(pickle.dumps(log))  # noqa: S301
    assert again.segments.read_bytes("a") == b"x"
    assert SECRET not in repr(again.root) + str(vars(again))


# -- the log on it -------------------------------------------------------------------------------


class Transactions:
    """Cuts transactions, one a segment."""

    def __init__(self, start: Frontier = START, count: int = 8) -> None:
        self.history = build([TRANSACTION] * count)
        self._assembler = Assembler(start, describe)
        self._messages = self.history.messages(start)

    def next(self) -> Cut:
        while True:
            message = self._messages.pop(0)
            self._assembler.add([message])
            if message[HEADER] == ord("C"):
                return self._assembler.cut()


def publish(writer: LogWriter, cut: Cut) -> SegmentName:
    return writer.publish(cut.segment, cut.frontier, is_open=cut.is_open)


def changes(log: ChangeLog) -> list[Change]:
    listing = log.list()
    end = listing.frontier
    assert end is not None
    pointers = chain.between(listing.segments, listing.sizes, START.commit_lsn, end.commit_lsn)
    return [change for run in read_runs(log, pointers, 2**20) for change in read_back(run)]


def test_a_log_is_written_read_and_taken_over(log: ChangeLog) -> None:
    identity = LogIdentity("7001", 1, "shop", "penstock_shop")
    log.claim_identity(identity)
    log.claim_identity(identity)
    coming = Transactions()
    first = LogWriter(log)
    first.start_at(START)
    for _ in range(2):
        publish(first, coming.next())
    second = LogWriter(log)
    second.start_at(second.frontier or START)
    assert second.epoch == first.epoch + 1
    first._next_look = 0
    with pytest.raises(Fenced):
        publish(first, coming.next())
    again = Transactions(second.frontier or START)
    for _ in range(3):
        publish(second, again.next())
    assert changes(log) == coming.history.changes[:5]
    assert second.listing.segments == log.list().segments
    second.remove(second.listing.segments[:2])
    assert second.listing.segments == log.list().segments


def test_writers_that_start_at_once_have_epochs_of_their_own(log: ChangeLog) -> None:
    with ThreadPoolExecutor(4) as pool:
        writers = list(pool.map(LogWriter, [log] * 4))
    epochs = [writer.epoch for writer in writers]
    assert len({*epochs}) == 4
    assert log.newest_epoch() == max(epochs)


def test_readers_positions_survive_and_go(log: ChangeLog) -> None:
    log.set_reader("shop", Frontier(1, 2), durable=True)
    log.set_reader("other", Frontier(3, 4))
    assert {name: state.frontier for name, state in log.all_readers().items()} == {
        "shop": Frontier(1, 2),
        "other": Frontier(3, 4),
    }
    log.remove_reader("shop")
    assert log.all_readers().keys() == {"other"}


def test_a_view_follows_the_log_over_a_takeover(log: ChangeLog) -> None:
    view, coming = LogView(log), Transactions()
    assert view.listing().segments == ()
    first = LogWriter(log)
    first.start_at(START)
    for number in range(3):
        publish(first, coming.next())
        view._next = 0
        assert len(view.listing().segments) == number + 1
    second = LogWriter(log)
    second.start_at(second.frontier or START)
    publish(second, Transactions(second.frontier or START).next())
    view._next = 0
    assert view.listing().segments == log.list().segments
    end = log.list().frontier
    assert view.listing(at_least=end).frontier == end


def six_segments(log: ChangeLog) -> tuple[SegmentName, ...]:
    writer, coming = LogWriter(log), Transactions()
    writer.start_at(START)
    for _ in range(6):
        publish(writer, coming.next())
    return log.list().segments


def test_a_removal_that_was_interrupted_harms_nobody(log: ChangeLog) -> None:
    """Stores delete many at a time in any order: what nobody needs may be there in part."""
    segments = six_segments(log)
    log.set_reader("shop", segments[3].frontier)
    log.segments.delete(str(segments[1]), str(segments[2]))
    assert log.list().segments == segments[3:]
    # The next writer takes away what is left of it.
    again = LogWriter(log)
    assert again.listing.segments == segments[3:]
    assert not log.segments.exists(str(segments[0]))
    again.remove(again.listing.segments[:1])
    log.segments.delete(str(segments[4]))
    assert log.list().segments == segments[5:]


def test_a_segment_that_is_needed_is_missed(log: ChangeLog) -> None:
    segments = six_segments(log)
    log.set_reader("shop", segments[3].frontier)
    log.set_reader("slow", segments[0].frontier)
    log.segments.delete(str(segments[2]))
    with pytest.raises(LogError, match="missing in the middle"):
        log.list()


def test_one_that_is_gone_already_keeps_nothing_else_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 does not tell of it; other stores do, and do nothing more."""
    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(bucket, "opened", lambda *_: store)
    objects = Bucket("s3://shop/log", {}, CHANGE_LOG)
    for name in "abcd":
        objects.put(name, b"x")
    objects.delete("b")
    with pytest.raises(FileNotFoundError):
        store.delete(["log/a", "log/b", "log/c", "log/d"])
    objects.delete("a", "b", "c", "d")
    assert objects.list() == []


# -- what only an object store does --------------------------------------------------------------


def failing(times: int, fault: Fault, *kinds: Kind, path: str = "") -> Decide:
    """The first so many requests of these kinds to such a path."""
    left = [times]

    def decide(kind: Kind, at: str) -> Fault | None:
        if kind in kinds and path in at and left[0]:
            left[0] -= 1
            return fault
        return None

    return decide


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_what_passes_by_itself_is_tried_again(
    object_log: ChangeLog, object_server: ObjectServer, status: int
) -> None:
    storage = object_log.segments
    if status != 409:
        object_server.proxy.set(failing(2, Fault(status), "PUT"))
        storage.write("a", b"x", durable=True)
        object_server.proxy.set(failing(2, Fault(status), "GET", "LIST"))
        assert storage.read_bytes("a") == b"x"
    object_server.proxy.set(failing(2, Fault(status), "PUT"))
    assert storage.create("b", b"y")


def test_an_answer_that_is_lost_is_no_other_s_success(
    object_log: ChangeLog, object_server: ObjectServer
) -> None:
    object_server.proxy.set(failing(1, Fault(answer_lost=True), "PUT"))
    assert object_log.epochs.create("000001", b"mine")
    object_server.proxy.set(failing(1, Fault(answer_lost=True), "PUT"))
    assert not object_log.epochs.create("000001", b"another's")


def test_a_store_that_is_away_is_worth_another_try(
    object_log: ChangeLog, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.objects.bucket._RETRY_SECONDS", 0)
    opened.cache_clear()
    object_server.proxy.set(lambda _kind, _path: Fault(503))
    for ask in (
        object_log.list,
        lambda: object_log.segments.write("a", b"", durable=True),
        lambda: object_log.segments.read("a"),
    ):
        with pytest.raises(LogUnavailable) as caught:
            ask()
        assert object_log.root.path in caught.value.message
        assert SECRET not in str(caught.value)
    opened.cache_clear()


def test_refusals_say_what_is_wrong(object_server: ObjectServer) -> None:
    place, options = object_server.place(), object_server.options
    with pytest.raises(LogError, match="no such bucket") as caught:
        ChangeLog("s3://there-is-none/log", options).list()
    assert "make the bucket" in caught.value.remedy
    wrong = ChangeLog(f"{place}/log", {**options, "secret_access_key": "wrong-one"})
    with pytest.raises(LogError, match="refuses") as caught:
        wrong.list()
    assert not isinstance(caught.value, LogUnavailable)
    assert "wrong-one" not in str(caught.value)
    with pytest.raises(ConfigError, match="regoin"):
        ChangeLog(f"{place}/log", {**options, "regoin": "x"}).list()


class Careless(MemoryStorage):
    """A store that takes no notice of If-None-Match."""

    def child(self, name: str) -> Careless:
        return self

    def create(self, name: str, data: bytes) -> bool:
        self.files[name] = data
        return True


def test_the_check_finds_a_store_that_fences_nobody(object_log: ChangeLog) -> None:
    check_objects(object_log.root)
    assert object_log.root.entries() == set()
    with pytest.raises(LogError, match="If-None-Match"):
        check_objects(Careless("careless"))


def test_a_write_that_arrives_after_a_takeover_never_counts(
    object_log: ChangeLog, object_server: ObjectServer
) -> None:
    """Its writer died; the network held its last segment, and delivers it later."""
    coming = Transactions()
    died = LogWriter(object_log)
    died.start_at(START)
    publish(died, coming.next())
    # Its client sees a broken connection, and sends it once more. Neither has arrived so far.
    object_server.proxy.set(failing(1, Fault(late=True), "PUT", path="segments/"))
    late = str(publish(died, coming.next()))
    object_log.segments.delete(late)
    assert object_server.proxy.late == 1

    writer = LogWriter(object_log)
    writer.start_at(writer.frontier or START)
    before = object_log.list().segments
    assert object_server.proxy.deliver_late() == [200]
    assert late in dict(object_log.segments.list())
    assert object_log.list().segments == LogView(object_log).listing().segments == before
    again = Transactions(writer.frontier or START)
    for _ in range(2):
        publish(writer, again.next())
    assert changes(object_log) == coming.history.changes[:3]
