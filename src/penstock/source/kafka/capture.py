"""The capture process of topics: fills the log until it is told to stop, or must not go on."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg

from penstock.changelog.changelog import ChangeLog, LogIdentity
from penstock.changelog.retention import PassedSince
from penstock.changelog.writer import LogWriter
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.model.errors import (
    SourceError,
)
from penstock.model.source_identity import SeenSource, SourceIdentity
from penstock.source.capture.keeper import Awaited, FilledLog
from penstock.source.capture.sessions import run_sessions
from penstock.source.capture.stop import Stop
from penstock.source.kafka.client import Brokers, TopicReader, group_name
from penstock.source.kafka.identity import DATABASE, TopicsIdentity, claim, stored_offsets
from penstock.source.kafka.offsets import SLACK, START, Offsets, position_of
from penstock.source.kafka.session import TopicAccess, TopicSession
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import LOCK_SECONDS, PipelineLock
from penstock.source.postgres.source_errors import source_errors


def run_capture(config: KafkaPipelineConfig, stop: Stop, *, stands_by: bool = False) -> None:
    """Capture until ``stop``; reconnects by itself, raises what a person has to look at.

    ``stands_by``: while another process captures for this pipeline, wait until it has ended.
    """
    log = ChangeLog.of(config.change_log)
    passed: PassedSince = {}

    def session() -> None:
        _run_session(config, log, passed, stop, stands_by=stands_by)

    run_sessions(log, stop, session, stands_by=stands_by)


def _run_session(
    config: KafkaPipelineConfig,
    log: ChangeLog,
    passed: PassedSince,
    stop: Stop,
    *,
    stands_by: bool,
) -> None:
    application = f"penstock {config.name} capture"
    patience = 0.0 if stands_by else LOCK_SECONDS
    group = group_name(config.source, config.name)
    with (
        connect(config.source.url, application_name=application) as conn,
        PipelineLock(conn, config.name, what="capture", patience=patience) as _lock,
    ):
        brokers = Brokers(config.source)
        cluster = brokers.cluster_id()
        identity, _ = claim(
            log, cluster, group, config.source.format, config.source.transaction_topic
        )
        _expect_own_group(brokers, identity)
        log.claim_identity(LogIdentity(cluster, 1, DATABASE, group))
        writer = LogWriter(log)
        offsets = stored_offsets(log, writer.listing)
        _expect_readers(config, log, identity, offsets)
        if writer.frontier is None:
            writer.start_at(START)
        else:
            writer.start_at(writer.frontier, "" if offsets is None else offsets.to_json())
        reader = TopicReader(config.source, group)
        try:
            session = TopicSession(
                config,
                FilledLog(log, writer, stop.link, Awaited.of(config, writer), passed),
                TopicAccess(brokers, reader, identity),
                offsets,
                stop,
            )
            session.run(partial(_check_lock, conn))
        finally:
            reader.close()


def _check_lock(conn: psycopg.Connection[Any]) -> None:
    """Raise SourceUnavailable where the session that has the lock is lost."""
    with source_errors("asking whether the pipeline's lock is held"):
        conn.execute("SELECT")


def _expect_own_group(brokers: Brokers, identity: TopicsIdentity) -> None:
    """Raise SourceError where somebody else uses the group."""
    if found := brokers.members(identity.group):
        raise SourceError(
            f"the consumer group {identity.group} has members that are not Penstock "
            f"({', '.join(found[:3])}): offsets of both would be mixed up",
            remedy="set source.group to a name of this pipeline's own",
        )
    for place, (at, beside) in brokers.committed(identity.group).items():
        if beside != identity.tag:
            raise SourceError(
                f"the consumer group {identity.group} stands at offset {at} of {place}, which this "
                "pipeline's change log has not committed: the group is another consumer's, or the "
                "log that it belongs to is lost",
                remedy="set source.group to a name of this pipeline's own. If the log is lost, "
                "begin anew: `penstock destroy FILE`, then `penstock run FILE`, which reads all "
                "topics from their beginning",
            )


def _expect_readers(
    config: KafkaPipelineConfig, log: ChangeLog, identity: TopicsIdentity, offsets: Offsets | None
) -> None:
    """Raise IdentityChanged where a destination stands at positions of another log."""
    total = 0 if offsets is None else offsets.total
    seen = seen_source(identity, position_of(total) + SLACK)
    for name, own in config.deliveries.items():
        reader = log.reader(own)
        if reader is not None:
            who = f"The destination {name}" if name else "The destination"
            seen.expect(reader.source, reader.frontier.end_lsn, who)


def seen_source(identity: TopicsIdentity, position: int) -> SeenSource:
    own = SourceIdentity(identity.cluster_id, 1, DATABASE, identity.uuid)
    return SeenSource(own, position)
