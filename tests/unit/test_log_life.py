"""The life of a log, against the model: writers die and are replaced, and writes come late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.retention import Retention, passed_by_all
from penstock.changelog.view import LogView
from penstock.model.errors import Fenced
from tests.log_sessions import Reader, Session
from tests.stream_model import START, History, LateStorage, build, histories, memory_log

ONE_INSERT = ("transaction", None, [("insert", 0, (b"1", b"x", None))])

action = st.one_of(
    st.tuples(st.just("receive"), st.integers(1, 9)),
    st.tuples(st.just("publish"), st.just(0)),
    st.tuples(st.just("publish"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 1)),
    st.tuples(st.just("read all"), st.integers(0, 1)),
    st.tuples(st.just("expire"), st.integers(0, 1)),
)


def expect_everything_read(readers: Sequence[Reader], history: History) -> None:
    for reader in readers:
        while reader.read(max_bytes=1):
            pass
        assert reader.changes == history.changes


@settings(max_examples=150)
@given(histories(8), st.lists(action, max_size=30))
# All is read and expired while a transaction is half written; then the writer dies.
@example(
    build([ONE_INSERT, ONE_INSERT]),
    [("receive", 4), ("publish", 0), ("receive", 2), ("publish", 0), ("expire", 1), ("crash", 0)],
)
def test_crashes_and_retention_lose_and_repeat_nothing(
    history: History, actions: list[tuple[str, int]]
) -> None:
    log = memory_log()
    session = Session(log, history)
    readers = [Reader(log), Reader(log, LogView(log))]
    promised = START
    for what, number in actions:
        if what == "receive":
            session.receive(number)
        elif what == "publish":
            session.publish()
            promised = session.writer.frontier or START
        elif what == "crash":
            session = Session(log, history)
            # The slot may be confirmed up to here: a log that ends before has lost changes.
            assert session.start == promised
        elif what == "read":
            readers[number].read(max_bytes=1)
        elif what == "read all":
            while readers[number].read(max_bytes=4000):
                pass
        else:
            while number and any(reader.read(max_bytes=4000) for reader in readers):
                pass
            frontiers = [reader.frontier for reader in readers]
            for name in passed_by_all(log.list().segments, frontiers):
                log.segments.delete(str(name))
        for reader in readers:
            assert reader.changes == history.committed_up_to(reader.frontier.commit_lsn)
    session.finish()
    expect_everything_read(readers, history)


late_action = st.one_of(
    action,
    st.tuples(st.just("die"), st.just(0)),
    st.tuples(st.just("arrive"), st.integers(0, 3)),
    st.tuples(st.just("arrive"), st.integers(0, 3)),
    st.tuples(st.just("begin anew"), st.just(0)),
)
GO_ON = [("receive", 4), ("publish", 0)]
DIE = [("receive", 4), ("die", 0)]
READ = [("read all", 0), ("read all", 1)]
COME = [("expire", 0), ("arrive", 0)]


@settings(max_examples=150)
@given(histories(8), st.lists(late_action, max_size=40))
# All that stands beside the late one is removed but the last, which readers hold.
@example(
    build([ONE_INSERT] * 3),
    [*GO_ON, *DIE, *GO_ON, *GO_ON, *READ, *COME],
)
# The same, and they do not.
@example(
    build([ONE_INSERT] * 3),
    [*GO_ON, *DIE, *GO_ON, *READ, *GO_ON, *COME],
)
# A reader knows a transaction's parts that its writer's successor removes; the last part is late.
@example(
    build([ONE_INSERT, ("transaction", None, ONE_INSERT[2] * 12)]),
    [*GO_ON, ("read", 1), *GO_ON, *GO_ON, ("read", 1), ("receive", 9), *DIE, COME[1], ("read", 1)],
)
# It comes to a log that was begun anew, the end of which is before it.
@example(
    build([ONE_INSERT] * 4),
    [*GO_ON, *GO_ON, *READ, *DIE, *DIE, ("begin anew", 0), *GO_ON, COME[1], *GO_ON, *READ],
)
# It comes to a log without segments, and the next writer has written nothing yet.
@example(build([ONE_INSERT]), [*DIE, COME[1], ("read", 1)])
# It stands right before what holds the same.
@example(
    build([ONE_INSERT] * 2),
    [*GO_ON, *READ, *DIE, *GO_ON, *COME, *READ],
)
def test_what_arrives_late_is_never_read_and_stops_nobody(
    history: History, actions: list[tuple[str, int]]
) -> None:
    """A writer dies with a segment on its way, is replaced, and the segment arrives: at once, when
    all around it is removed, or in a log that was begun anew.
    """
    log = memory_log(LateStorage)
    assert isinstance(log.segments, LateStorage)
    hours = count(1, 3600)
    session, is_first, is_another = begin(log, history, next(hours)), True, False
    readers = [Reader(log), Reader(log, LogView(log))]
    for what, number in actions:
        if what == "receive":
            session.receive(number)
        elif what == "publish":
            session.publish()
        elif what in ("crash", "die"):
            promised = session.writer.frontier or START
            log.segments.is_slow = what == "die"
            session.publish()
            log.segments.is_slow = False
            if what == "crash":
                promised = session.writer.frontier or START
            was_first, is_first = is_first, not log.segments.files
            session = Session(log, history)
            # In an empty log a writer takes no number: what an earlier one sent may still count.
            assert session.start == promised or (session.start > promised and was_first)
        elif what == "begin anew":
            for storage in (log.root, log.segments, log.readers, log.epochs):
                storage.delete(*dict(storage.list()))
            session, is_first, is_another = begin(log, history, next(hours)), True, True
            assert session.start == START
        elif what == "arrive":
            # Until the new log has a segment, what is sent to the earlier one is taken for its own.
            if log.segments.files or not is_another:
                log.segments.arrive(number)
        elif what == "read":
            readers[number].read(max_bytes=1)
        elif what == "read all":
            while readers[number].read(max_bytes=4000):
                pass
        else:
            while number and any(reader.read(max_bytes=4000) for reader in readers):
                pass
            for name, reader in enumerate(readers):
                log.set_reader(f"reader{name}", reader.frontier)
            listing = session.writer.listing
            passed = passed_by_all(listing.segments, [reader.frontier for reader in readers])
            if passed:
                session.writer.remove(passed)
        for reader in readers:
            assert reader.changes == history.committed_up_to(reader.frontier.commit_lsn)
        # Who follows the log as a pipeline does never gets ahead of who fills it.
        assert is_another or readers[1].frontier <= (session.writer.frontier or START)
    session.finish()
    expect_everything_read(readers, history)


def begin(log: ChangeLog, history: History, now: int) -> Session:
    """The first session of a log, at a time of day."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.changelog.writer.time.time", lambda: now)
        return Session(log, history)


@settings(max_examples=60)
@given(histories(6), st.integers(0, 20), st.integers(1, 20), st.booleans())
def test_a_stale_writer_that_slips_through_the_fence_changes_nothing(
    history: History, before: int, late: int, newer_first: bool
) -> None:
    """Fence check and rename are two steps: a stale segment may still appear between them."""
    log = memory_log()
    stale = Session(log, history)
    stale.receive(before)
    stale.publish()
    session = Session(log, history)
    stale.receive(late)
    stale.writer._next_look = math.inf  # it has just looked
    if newer_first:
        session.receive(before)
        session.publish()
    with suppress(Fenced):
        stale.publish()
    session.finish()
    reader = Reader(log)
    while reader.read(max_bytes=1):
        pass
    assert reader.changes == history.changes


def test_what_is_sent_twice_finds_itself_when_it_arrives_again() -> None:
    """The client's first attempt was slow, and its second one succeeded. Readers pass the segment
    at once, and users want it to go at once.
    """
    log, history = memory_log(LateStorage), build([ONE_INSERT] * 8)
    session, reader, slow_reader = Session(log, history), Reader(log), Reader(log)
    retention = Retention(0, late_writes=log.segments.has_late_writes)

    def go_on(now: int) -> None:
        session.receive(4)
        session.publish()
        while reader.read(max_bytes=10**6):
            pass
        log.set_reader("slow", slow_reader.frontier)
        held = [reader.frontier, slow_reader.frontier]
        if expired := retention.expired(session.writer.listing.segments, held, now):
            session.writer.remove(expired)

    assert isinstance(log.segments, LateStorage)
    for now in range(4):
        go_on(now)
    name, data = sorted(log.segments.files.items())[1]
    while slow_reader.read(max_bytes=1):
        pass
    for now in (5, 100):
        go_on(now)
    log.segments.files[name] = data
    session = Session(log, history)
    for now in (104, 300):
        go_on(now)
    assert name not in log.segments.files
    session.finish()
    expect_everything_read([reader, slow_reader], history)
