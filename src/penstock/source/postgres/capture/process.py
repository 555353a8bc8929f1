"""The capture process: sessions one after another, until it is told to stop or must not go on."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.cadence import paced
from penstock.changelog.changelog import ChangeLog, LogIdentity
from penstock.changelog.retention import PassedSince
from penstock.changelog.writer import LogWriter
from penstock.config.models import PipelineConfig
from penstock.model.errors import (
    PipelineBusy,
    SlotError,
)
from penstock.model.lsn import Frontier
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.model.watermarks import Watermarks
from penstock.source.capture.keeper import Awaited, FilledLog
from penstock.source.capture.say import say
from penstock.source.capture.sessions import NotYetError, run_sessions
from penstock.source.capture.stop import Stop
from penstock.source.contract import Subscription
from penstock.source.postgres.capture.assemble import Assembler
from penstock.source.postgres.capture.catalogue import CatalogueConnection
from penstock.source.postgres.capture.messages import MessageFilter
from penstock.source.postgres.capture.relations import RelationDescriber
from penstock.source.postgres.capture.session import CaptureSession, CaptureSettings
from penstock.source.postgres.capture.stream import ReplicationStream, SlotBusy
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import LOCK_SECONDS, PipelineLock
from penstock.source.postgres.silence import silence_limit
from penstock.source.postgres.subscription.slot import (
    end_own_walsender,
    judge_slot,
    slot_state,
)
from penstock.source.postgres.subscription.subscription import find_subscription

# A slot of a process that just died frees itself within moments, and a capture that lives lets go
# of it as soon as it has lost the pipeline's lock. Longer means a walsender of a lost machine, or
# somebody else.
_SLOT_BUSY_SECONDS = paced(20.0)


AskDestination = Callable[[str], Watermarks | None]
"""What the destination of that name holds; None where it does not remember."""


@dataclass(frozen=True)
class Destinations:
    """What is known of them beside the log: the only one has said what it holds, or those of
    several can be asked where the log is lost.
    """

    held: Watermarks | None
    ask: AskDestination


def run_capture(
    config: PipelineConfig,
    destination: Watermarks | None,
    stop: Stop,
    *,
    ask: AskDestination = lambda _: None,
    stands_by: bool = False,
) -> None:
    """Capture until ``stop``; reconnects by itself, raises what a person has to look at.

    ``destination`` is what the destination holds; it counts where the log is empty. Of several,
    each is asked (``ask``) only where nothing else is left. ``stands_by``: while another process
    captures for this pipeline, wait until it has ended.
    """
    # The hot loop makes many objects and no cycles.
    gc.disable()
    log = ChangeLog.of(config.change_log)
    known = Destinations(destination, ask)
    passed: PassedSince = {}

    def session(insist: bool) -> None:
        _run_session(config, log, known, passed, stop, insist=insist, stands_by=stands_by)

    run_sessions(log, stop, _SlotSessions(session), stands_by=stands_by)


class _SlotSessions:
    """Sessions with a slot, which somebody else may hold. It is waited for; in the end the next
    session is to ``insist``, and what holds the slot even then is an error.
    """

    def __init__(self, run: Callable[[bool], None]) -> None:
        self._run = run
        self._busy_since: float | None = None

    def __call__(self) -> None:
        began, since = time.monotonic(), self._busy_since
        insist = since is not None and began - since > _SLOT_BUSY_SECONDS
        self._busy_since = None
        try:
            self._run(insist)
        except PipelineBusy:
            self._busy_since = since
            raise
        except SlotBusy as error:
            if insist:
                raise SlotError(
                    error.message,
                    remedy="find the process behind that pid (SELECT * FROM pg_stat_activity) and "
                    "stop it; two readers of one slot would each get a part of the changes",
                ) from None
            self._busy_since = since or began
            raise NotYetError(paced(1.0)) from None


def _run_session(
    config: PipelineConfig,
    log: ChangeLog,
    destinations: Destinations,
    passed: PassedSince,
    stop: Stop,
    *,
    insist: bool,
    stands_by: bool,
) -> None:
    """``insist``: a walsender of our own that still has the slot is ended."""
    application = f"penstock {config.name} capture"
    with connect(config.source.url, application_name=application) as conn:
        subscription = find_subscription(conn, config.name)
        if subscription is None:
            raise SlotError(
                f"pipeline {config.name} has no publication and slot in the source",
                remedy="`penstock init FILE` makes them; `penstock run FILE` does so by itself",
            )
        # The connection is shared with the thread that publishes, which reads it in its own way.
        patience = 0.0 if stands_by else LOCK_SECONDS
        with PipelineLock(conn, config.name, what="capture", patience=patience, beats=False):
            if insist and (ended := end_own_walsender(conn, subscription.slot)) is not None:
                say(
                    f"slot {subscription.slot} was held by walsender {ended}, though we "
                    "have the pipeline's lock: a machine or a connection that was lost; it was "
                    "ended"
                )
            stream = ReplicationStream(
                connect(config.source.url, replication=True, application_name=application),
                VALUE_SETTINGS,
                silence_limit(config.source.url),
            )
            try:
                _stream(config, conn, stream, subscription, log, destinations, passed, stop)
            finally:
                stream.close()


def _stream(
    config: PipelineConfig,
    conn: psycopg.Connection[Any],
    stream: ReplicationStream,
    subscription: Subscription,
    log: ChangeLog,
    destinations: Destinations,
    passed: PassedSince,
    stop: Stop,
) -> None:
    seen = stream.identify(subscription.uuid)
    source = seen.identity
    log.claim_identity(
        LogIdentity(source.system_id, source.timeline, source.database, subscription.slot),
        seen.left,
    )
    readers = {name: log.reader(own) for name, own in config.deliveries.items()}
    for name, reader in readers.items():
        if reader is not None:
            who = f"The destination {name}" if name else "The destination"
            seen.expect(reader.source, reader.frontier.end_lsn, who)
    writer = LogWriter(log)
    state = slot_state(conn, subscription.slot)
    confirmed = (state.confirmed_flush if state else None) or subscription.start_lsn
    known = [reader.frontier for reader in readers.values() if reader is not None]
    if (held := destinations.held) is not None:
        seen.expect(held.source, held.frontier.end_lsn, "The destination")
    if config.is_one_of_many and writer.frontier is None and confirmed > subscription.start_lsn:
        # The log is lost, and with it what was written down of some. Whoever does not remember it
        # either finds out by itself that something is missing.
        for name in (name for name, reader in readers.items() if reader is None):
            if (found := destinations.ask(name)) is not None:
                seen.expect(found.source, found.frontier.end_lsn, f"The destination {name}")
                known.append(found.low)
    start = start_frontier(
        writer.frontier, min(known, default=None), held.low if held else None, confirmed
    ) or Frontier(0, subscription.start_lsn)
    # What the log itself holds is of this source: claim_identity has seen to that.
    seen.expect(None, start.end_lsn, f"The change log in {log.root.path}")
    judge_slot(state, subscription.slot, expected_start=start.end_lsn)
    writer.start_at(start)
    stream.start(
        subscription.slot,
        subscription.publications,
        start.end_lsn,
        messages=wants_messages(config),
    )
    # Once more, now that nobody else can move it: who had it until now may not have seen yet that
    # he was replaced.
    judge_slot(slot_state(conn, subscription.slot), subscription.slot, expected_start=start.end_lsn)
    limit = silence_limit(config.source.url)
    catalogue = CatalogueConnection(conn, limit)
    session = CaptureSession(
        stream,
        FilledLog(log, writer, stop.link, Awaited.of(config, writer, start), passed),
        Assembler(
            start,
            RelationDescriber(catalogue.resolve_types),
            MessageFilter(config.source.messages, catalogue.seal_key),
        ),
        CaptureSettings(
            confirm_log=config.change_log.confirm == "log",
            segment_bytes=config.change_log.segment_bytes,
            segment_age=config.change_log.segment_age,
            max_bytes=config.change_log.max_bytes,
            grace=config.change_log.grace,
            silence=limit,
        ),
        confirmed=confirmed,
        check_lock=catalogue.check_open,
    )
    session.run(stop, stop.wake)


def wants_messages(config: PipelineConfig) -> bool:
    """Whether anything of the pipeline is told by logical messages."""
    return config.schema_changes.track or bool(config.source.messages)


def start_frontier(
    log_end: Frontier | None,
    reader: Frontier | None,
    destination: Frontier | None,
    confirmed: int,
) -> Frontier | None:
    """Where to go on: the log's end, else what the reader holds, which is what all of its tables
    hold; None where nothing is known.

    A reader behind what was ``confirmed`` to the slot means that an older log was put in place.
    Then the destination itself counts, so that nothing is asked of the slot that it no longer has;
    else it does not: some of its tables may be behind it.
    """
    known = [log_end, reader]
    if reader is None or reader.end_lsn < confirmed:
        known.append(destination)
    return max(filter(None, known), default=None)
