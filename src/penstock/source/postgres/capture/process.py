"""The capture process: sessions one after another, until it is told to stop or must not go on."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any

import psycopg

from penstock.backoff import Backoff
from penstock.cadence import paced
from penstock.changelog.changelog import ChangeLog, Identity
from penstock.changelog.writer import LogWriter
from penstock.config.models import PipelineConfig
from penstock.model.error_transport import error_to_json
from penstock.model.errors import LogUnavailable, PenstockError, SlotError, SourceUnavailable
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.source.contract import Subscription
from penstock.source.postgres.capture.assemble import Assembler
from penstock.source.postgres.capture.catalogue import CatalogueConnection
from penstock.source.postgres.capture.link import Link
from penstock.source.postgres.capture.messages import MessageFilter
from penstock.source.postgres.capture.relations import RelationDescriber
from penstock.source.postgres.capture.session import CaptureSession, CaptureSettings
from penstock.source.postgres.capture.stop import Stop
from penstock.source.postgres.capture.stream import ReplicationStream, SlotBusy
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import PipelineLock
from penstock.source.postgres.silence import silence_limit
from penstock.source.postgres.subscription.slot import (
    end_own_walsender,
    judge_slot,
    slot_state,
)
from penstock.source.postgres.subscription.subscription import find_subscription
from penstock.source.postgres.value_settings import VALUE_SETTINGS

# A slot of a process that just died frees itself within moments, and a capture that lives lets go
# of it as soon as it has lost the pipeline's lock. Longer means a walsender of a lost machine, or
# somebody else.
_SLOT_BUSY_SECONDS = paced(20.0)


def run_capture(config: PipelineConfig, destination: Watermarks | None, stop: Stop) -> None:
    """Capture until ``stop``; reconnects by itself, raises what a person has to look at.

    ``destination`` is what the destination holds; it counts where the log is empty.
    """
    # The hot loop makes many objects and no cycles.
    gc.disable()
    log = ChangeLog.of(config.change_log)
    log.root.make_private()
    backoff = Backoff()
    busy_since: float | None = None
    while not stop():
        began = time.monotonic()
        insist = busy_since is not None and began - busy_since > _SLOT_BUSY_SECONDS
        try:
            _run_session(config, log, destination, stop, insist=insist)
            return
        except SlotBusy as error:
            if insist:
                raise SlotError(
                    error.message,
                    remedy="find the process behind that pid (SELECT * FROM pg_stat_activity) and "
                    "stop it; two readers of one slot would each get a part of the changes",
                ) from None
            busy_since = busy_since or began
            stop.wait(paced(1.0))
        except (SourceUnavailable, LogUnavailable) as error:
            busy_since = None
            pause = backoff.next_pause()
            stop.link.report(
                log,
                {
                    "state": "reconnecting",
                    "pid": os.getpid(),
                    "at": time.time(),
                    "error": str(error),
                },
            )
            print(f"capture: {error}; trying again in {pause:.1f} s", file=sys.stderr, flush=True)
            stop.wait(pause)


def _run_session(
    config: PipelineConfig,
    log: ChangeLog,
    destination: Watermarks | None,
    stop: Stop,
    *,
    insist: bool,
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
        with PipelineLock(conn, config.name, what="capture", beats=False):
            if insist and (ended := end_own_walsender(conn, subscription.slot)) is not None:
                print(
                    f"capture: slot {subscription.slot} was held by walsender {ended}, though we "
                    "have the pipeline's lock: a machine or a connection that was lost; it was "
                    "ended",
                    file=sys.stderr,
                    flush=True,
                )
            stream = ReplicationStream(
                connect(config.source.url, replication=True, application_name=application),
                VALUE_SETTINGS,
            )
            try:
                _stream(config, conn, stream, subscription, log, destination, stop)
            finally:
                stream.close()


def _stream(
    config: PipelineConfig,
    conn: psycopg.Connection[Any],
    stream: ReplicationStream,
    subscription: Subscription,
    log: ChangeLog,
    destination: Watermarks | None,
    stop: Stop,
) -> None:
    seen = stream.identify(subscription.uuid)
    source = seen.identity
    log.claim_identity(
        Identity(source.system_id, source.timeline, source.database, subscription.slot), seen.left
    )
    reader = log.reader(config.name)
    if destination is not None:
        seen.expect(destination.source, destination.frontier.end_lsn, "The destination")
    if reader is not None:
        seen.expect(reader.source, reader.frontier.end_lsn, "The destination")
    writer = LogWriter(log)
    state = slot_state(conn, subscription.slot)
    confirmed = (state.confirmed_flush if state else None) or subscription.start_lsn
    start = start_frontier(
        writer.frontier,
        reader.frontier if reader else None,
        destination.low if destination else None,
        confirmed,
    ) or Frontier(0, subscription.start_lsn)
    # What the log itself holds is of this source: claim_identity has seen to that.
    seen.expect(None, start.end_lsn, f"The change log in {log.root.path}")
    judge_slot(state, subscription.slot, expected_start=start.end_lsn)
    writer.start_at(start)
    stream.start(subscription.slot, subscription.publications, start.end_lsn)
    limit = silence_limit(config.source.url)
    catalogue = CatalogueConnection(conn, limit)
    session = CaptureSession(
        stream,
        log,
        writer,
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
        link=stop.link,
    )
    session.run(stop, stop.wake)


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


def report_failure(link: Link, log: ChangeLog, error: PenstockError) -> None:
    """Leave the reason where `penstock run` and `penstock status` find it."""
    link.report(
        log,
        {
            "state": "failed",
            "pid": os.getpid(),
            "at": time.time(),
            "error": error.message,
            "remedy": error.remedy,
            **error_to_json(error),
        },
    )
