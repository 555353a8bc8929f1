"""Preflight checks of the server, the role and the slot."""

from __future__ import annotations

from psycopg import sql

from penstock.model.errors import SlotError
from penstock.model.lsn import format_lsn
from penstock.source.postgres.connect import connect
from penstock.source.postgres.preflight.finding import CheckedSource, Finding, listed
from penstock.source.postgres.subscription.slot import judge_slot
from penstock.source.postgres.tracking.schema_tracking import (
    INSTALL_TRACKING,
    NOT_TRACKED,
    is_tracking,
)

OLDEST_VERSION = 14
NEWEST_VERSION = 18
_SHORT_TIMEOUT_SECONDS = 10


def version(source: CheckedSource) -> Finding:
    number = source.conn.info.server_version
    major, text = number // 10000, f"Postgres {number // 10000}.{number % 10000}"
    if major < OLDEST_VERSION:
        return Finding(
            "failed",
            f"{text} is older than {OLDEST_VERSION}, the oldest that Penstock supports",
            f"Upgrade the source to Postgres {OLDEST_VERSION} or newer.",
        )
    if major > NEWEST_VERSION:
        return Finding(
            "warning",
            f"{text} is newer than {NEWEST_VERSION}, the newest that Penstock is tested with",
            "Try it on a copy first.",
        )
    return Finding("passed", text)


def primary(source: CheckedSource) -> Finding:
    if source.value("SELECT pg_is_in_recovery()"):
        return Finding(
            "failed",
            "the server is a standby (or still in recovery): no publication can be made there",
            "Point source.url at the primary.",
        )
    return Finding("passed", "the server is a primary")


def wal_level(source: CheckedSource) -> Finding:
    level = source.setting("wal_level")
    if level != "logical":
        return Finding(
            "failed",
            f"wal_level is {level}; logical replication needs logical",
            "Run as a superuser: ALTER SYSTEM SET wal_level = 'logical'; then restart the server. "
            "Managed services have a setting of their own, such as rds.logical_replication = 1.",
        )
    return Finding("passed", "wal_level is logical")


def replication_privilege(source: CheckedSource) -> Finding:
    role = source.value("SELECT session_user::text")
    if source.may_replicate:
        return Finding("passed", f"role {role} may replicate")
    statement = sql.SQL("ALTER ROLE {} REPLICATION").format(sql.Identifier(role)).as_string(None)
    return Finding(
        "failed",
        f"role {role} is neither superuser nor has the attribute REPLICATION",
        f"Run as a superuser: {statement}; managed services: grant their replication role, such "
        "as rds_replication.",
    )


def replication_connection(source: CheckedSource) -> Finding:
    if not source.may_replicate:
        return Finding("skipped", "not checked: the role may not replicate")
    name = f"penstock {source.config.name} check"
    with connect(source.config.source.url, replication=True, application_name=name) as replication:
        row = replication.execute("IDENTIFY_SYSTEM").fetchone()
    if row is None:
        return Finding(
            "failed",
            "the server answered IDENTIFY_SYSTEM with nothing, as no Postgres does",
            "Point source.url at the Postgres server itself.",
        )
    return Finding("passed", f"system identifier {row[0]}, timeline {row[1]}")


def free_slots(source: CheckedSource) -> Finding:
    if source.slot is not None:
        return Finding("passed", "not needed: the pipeline has its slot")
    limit = int(source.setting("max_replication_slots") or 0)
    used = source.value("SELECT count(*) FROM pg_replication_slots")
    if used >= limit:
        return Finding(
            "failed",
            f"all {limit} replication slots are in use",
            "Drop one that nobody needs (SELECT slot_name, active FROM pg_replication_slots; then "
            "pg_drop_replication_slot), or raise max_replication_slots and restart the server.",
        )
    return Finding("passed", f"{limit - used} of {limit} replication slots are free")


def free_senders(source: CheckedSource) -> Finding:
    if source.slot is not None and source.slot.active:
        return Finding("passed", "not needed: the pipeline's slot is being read")
    limit = int(source.setting("max_wal_senders") or 0)
    used = source.value("SELECT count(*) FROM pg_stat_replication")
    if used >= limit:
        return Finding(
            "failed",
            f"all {limit} WAL senders are in use",
            "Stop a replication client that is not needed (SELECT * FROM pg_stat_replication), or "
            "raise max_wal_senders and restart the server.",
        )
    return Finding("passed", f"{limit - used} of {limit} WAL senders are free")


def sender_timeout(source: CheckedSource) -> Finding:
    text = source.setting("wal_sender_timeout")
    millis = source.value(
        "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'"
    )
    if 0 < millis < _SHORT_TIMEOUT_SECONDS * 1000:
        return Finding(
            "warning",
            f"wal_sender_timeout is {text}: a short pause of this machine cuts the connection",
            "Set wal_sender_timeout to 60s, the default, or more.",
        )
    return Finding("passed", f"wal_sender_timeout is {text}")


def kept_wal(source: CheckedSource) -> Finding:
    text = source.setting("max_slot_wal_keep_size")
    if text == "-1":
        return Finding(
            "passed",
            "max_slot_wal_keep_size is not set: a stopped pipeline keeps WAL until the source's "
            "disk is full, and loses nothing before",
        )
    return Finding(
        "passed",
        f"max_slot_wal_keep_size is {text}: a pipeline that falls further behind loses its slot",
    )


def idle_slot_timeout(source: CheckedSource) -> Finding:
    text = source.setting("idle_replication_slot_timeout")
    if text is None:
        return Finding("passed", "this version has no idle_replication_slot_timeout")
    if text == "0":
        return Finding("passed", "idle_replication_slot_timeout is off")
    return Finding(
        "warning",
        f"idle_replication_slot_timeout is {text}: a pipeline that stands still longer loses its "
        "slot",
        "Set idle_replication_slot_timeout to 0, or above the longest stop you plan.",
    )


def schema_changes(source: CheckedSource) -> Finding:
    if not source.config.schema_changes.track:
        return Finding("passed", "only what rows tell of is followed, as schema_changes.track says")
    if is_tracking(source.conn):
        return Finding("passed", "event triggers tell of every change")
    if source.value("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
        return Finding("passed", "event triggers will be created")
    return Finding("warning", NOT_TRACKED, INSTALL_TRACKING)


def slot(source: CheckedSource) -> Finding:
    subscription = source.subscription
    known = None if subscription is None else subscription.slot
    stray = [
        row[0]
        for row in source.conn.execute(
            "SELECT slot_name::text FROM pg_replication_slots"
            " WHERE slot_name ~ %s AND database = current_database() ORDER BY 1",
            [f"^penstock_{source.config.name}_[0-9a-f]{{8}}$"],
        )
        if row[0] != known
    ]
    if stray:
        return Finding(
            "warning",
            f"left over from an earlier publication of this pipeline: {listed(stray)}; nobody "
            "reads there, and the source keeps WAL for it",
            f"Drop it: SELECT pg_drop_replication_slot('{stray[0]}').",
        )
    if subscription is None:
        return Finding("passed", "none yet; `penstock init` or `penstock run` creates it")
    state = source.slot
    try:
        # Where log and destination stand is not known here, so only the slot's own health is.
        start = subscription.start_lsn
        judge_slot(
            state,
            subscription.slot,
            expected_start=start if state is None else max(start, state.confirmed_flush or 0),
        )
    except SlotError as error:
        return Finding("failed", error.message, error.remedy)
    assert state is not None  # noqa: S101 (judge_slot refuses a slot that is not there)
    reader = f"read by backend {state.active_pid}" if state.active else "not being read"
    position = format_lsn(state.confirmed_flush or 0)
    detail = f"{state.name} is at {position}, {reader}, WAL {state.wal_status}"
    if state.wal_status == "unreserved":
        return Finding(
            "warning",
            detail + ": it is about to be lost",
            "Start the pipeline now, or raise max_slot_wal_keep_size at once.",
        )
    return Finding("passed", detail)
