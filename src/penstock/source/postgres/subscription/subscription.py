"""A pipeline's publications and slot: made together, found again, removed together.

The publication is committed with its first tables before the slot exists, so the slot's point has
no table missing. Its COMMENT holds a uuid, from which the slot's name comes: a new publication
never meets an old slot. "start" in the comment is written last; a publication without it belongs
to a set-up that did not finish, and nobody has read from its slot.

Tables of which only inserts and truncates are followed have a second publication (publications.py).
"""

from __future__ import annotations

import uuid as uuids
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg

from penstock.config.models import PipelineConfig
from penstock.config.table_patterns import Rules
from penstock.model.errors import CheckFailed, PenstockError, SlotError
from penstock.model.lsn import parse_lsn
from penstock.source.contract import Subscription
from penstock.source.postgres.catalogue.tables import read_tables
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import LOCK_SECONDS, PipelineLock
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.subscription.open_transactions import describe_open_writers
from penstock.source.postgres.subscription.publications import (
    Publications,
    create_publications,
    drop_publications,
    own_publications,
    publication_name,
    read_publications,
    record_start,
)
from penstock.source.postgres.subscription.slot import PLUGIN
from penstock.source.postgres.subscription.table_selection import select_tables

SLOT_WAIT_SECONDS = 60.0
"""How long a new slot may wait for transactions that were open when its creation began."""


def slot_name(name: str, uuid: str) -> str:
    return f"penstock_{name}_{uuid.replace('-', '')[:8]}"


def find_subscription(conn: psycopg.Connection[Any], name: str) -> Subscription | None:
    """The pipeline's subscription; None without one, or where its set-up did not finish.

    Raises SourceError where a publication of that name belongs to somebody else, or where the
    second one is gone.
    """
    with source_errors(f"looking for the publication of pipeline {name}"):
        found = read_publications(conn, name)
    if found is None or found.start_lsn is None:
        return None
    return _subscription(name, found, found.start_lsn)


def ensure_subscription(
    conn: psycopg.Connection[Any],
    config: PipelineConfig,
    *,
    rules: Rules | None = None,
    slot_wait: float = SLOT_WAIT_SECONDS,
) -> Subscription:
    """Make the pipeline's publications and slot, or return those that exist.

    ``rules`` are exceptions from the patterns, by name.

    ``conn`` is in autocommit mode. What a call created is removed again where it fails. An existing
    subscription is returned as it is; whether its slot is still good is for judge_slot to say.
    """
    # Drivers of several destinations may come at once: one of them makes it, the others wait.
    patience = slot_wait + LOCK_SECONDS if config.is_one_of_many else LOCK_SECONDS
    with PipelineLock(conn, config.name, what="set-up", patience=patience):
        found = find_subscription(conn, config.name)
        if found is not None:
            return found
        # What is left of a set-up that did not finish; its slot was never read.
        _remove(conn, config.name)
        uuid = str(uuids.uuid4())
        try:
            return _create(conn, config, rules or {}, uuid, slot_wait)
        except BaseException as error:
            # Also for Ctrl-C: a slot that nobody reads would fill the source's disk.
            _undo(conn, config, uuid, error)
            raise


def destroy_subscription(conn: psycopg.Connection[Any], name: str) -> list[str]:
    """Remove the pipeline's slots, then its publications; says what was removed.

    Nothing there is no error. Raises SlotError, with nothing removed, where somebody reads from a
    slot, and SourceError where the publication is somebody else's.
    """
    with PipelineLock(conn, name, what="set-up"):
        return _remove(conn, name)


def has_pipelines(conn: psycopg.Connection[Any]) -> bool:
    """Whether any pipeline has a publication in this database."""
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname LIKE 'penstock\\_%')"
    ).fetchone()
    return row == (True,)


def _create(
    conn: psycopg.Connection[Any], config: PipelineConfig, rules: Rules, uuid: str, slot_wait: float
) -> Subscription:
    slot = slot_name(config.name, uuid)
    publication = publication_name(config.name)
    with source_errors(f"creating the publication {publication}"), conn.transaction():
        patterns = config.source.tables.patterns.with_rules(rules)
        selection = select_tables(read_tables(conn), patterns)
        if not selection.published:
            raise CheckFailed(
                "No table of the source matches source.tables; nothing was created.",
                remedy="Correct include and exclude; `penstock check` lists what matches.",
            )
        made = create_publications(
            conn,
            config.name,
            uuid,
            [table.table_name for table in selection.published],
            [table.table_name for table in selection.insert_only],
        )
    start = _create_slot(conn, config, slot, slot_wait)
    with source_errors(f"recording the start of slot {slot}"):
        record_start(conn, made, start)
    return replace(_subscription(config.name, made, start), is_new=True)


def _subscription(name: str, publications: Publications, start_lsn: int) -> Subscription:
    return Subscription(
        publications=publications.names,
        uuid=publications.uuid,
        slot=slot_name(name, publications.uuid),
        start_lsn=start_lsn,
        tables=publications.tables,
        insert_only=publications.insert_only,
    )


def _create_slot(
    conn: psycopg.Connection[Any], config: PipelineConfig, slot: str, slot_wait: float
) -> int:
    """Create the slot and return its consistent point."""
    # A connection of its own: it must not have written anything in its transaction, and a time
    # limit on it must not outlive the call.
    with (
        connect(config.source.url, application_name=f"penstock {config.name} set-up") as own,
        source_errors(f"creating the replication slot {slot}"),
    ):
        own.execute(
            "SELECT set_config('statement_timeout', %s, false)", [str(int(slot_wait * 1000))]
        )
        try:
            row = own.execute(
                "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, %s)", [slot, PLUGIN]
            ).fetchone()
        except psycopg.errors.QueryCanceled:
            raise SlotError(
                f"The replication slot {slot} could not be created within {slot_wait:g} s: it "
                "waits for transactions that were open before. Open now: "
                f"{describe_open_writers(conn)}.",
                remedy="End or commit them, then run the command again.",
            ) from None
    assert row is not None  # noqa: S101 (the function returns one row or raises)
    return parse_lsn(row[0])


def _undo(
    conn: psycopg.Connection[Any], config: PipelineConfig, uuid: str, error: BaseException
) -> None:
    """Remove what a failed set-up created. Never hides the error that made it fail."""
    try:
        if conn.closed or conn.broken:
            with connect(config.source.url, application_name="penstock clean-up") as fresh:
                _remove(fresh, config.name, only_uuid=uuid)
        else:
            _remove(conn, config.name, only_uuid=uuid)
    except PenstockError as failure:
        left = (
            f" What was created could not be removed ({failure.message}); "
            f"`penstock destroy` removes it once the source answers."
        )
        if isinstance(error, PenstockError):
            error.message += left
            error.args = (error.message,)
        else:
            error.add_note(left)


def _remove(conn: psycopg.Connection[Any], name: str, *, only_uuid: str | None = None) -> list[str]:
    """Drop slots, then publications: in this order a crash leaves nothing that cannot be found.

    With ``only_uuid`` a publication or slot of another uuid is left alone.
    """
    with source_errors(f"removing publication and slot of pipeline {name}"):
        # First of all: it raises where the name is somebody else's.
        found = own_publications(conn, name)
        removed = []
        for slot in _slots(conn, name):
            if only_uuid is not None and slot != slot_name(name, only_uuid):
                continue
            _drop_slot(conn, slot)
            removed.append(f"replication slot {slot}")
        ours = [key for key, uuid in found.items() if only_uuid in (None, uuid)]
        if ours:
            drop_publications(conn, ours)
        return removed + [f"publication {publication}" for publication in ours]


def _slots(conn: psycopg.Connection[Any], name: str) -> list[str]:
    """Slots of this pipeline in this database, also of publications that are gone."""
    rows = conn.execute(
        "SELECT slot_name::text, active_pid FROM pg_replication_slots"
        " WHERE slot_name ~ %s AND database = current_database() ORDER BY slot_name",
        [f"^penstock_{name}_[0-9a-f]{{8}}$"],
    ).fetchall()
    for slot, pid in rows:
        if pid is not None:
            raise _slot_in_use(slot, pid)
    return [slot for slot, _ in rows]


def _drop_slot(conn: psycopg.Connection[Any], slot: str) -> None:
    try:
        # Gone meanwhile is as good as dropped.
        with suppress(psycopg.errors.UndefinedObject):
            conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    except psycopg.errors.ObjectInUse:
        raise _slot_in_use(slot, None) from None


def _slot_in_use(slot: str, pid: int | None) -> SlotError:
    holder = f"Postgres backend {pid}" if pid else "another session"
    return SlotError(
        f"The replication slot {slot} is in use by {holder}; it was not dropped.",
        remedy="Stop the process that reads from it (`penstock run` or `penstock capture`), then "
        "try again. If only its connection is left: SELECT pg_terminate_backend(<pid>).",
    )
