"""Everything that must hold before a pipeline can run, checked without changing anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.storage.object_check import check_objects
from penstock.config.models import ChangeLogConfig, PipelineConfig
from penstock.model.errors import CheckFailed, PenstockError, SourceError
from penstock.source.postgres.connect import connect, without_secrets
from penstock.source.postgres.preflight import server_checks, table_checks
from penstock.source.postgres.preflight.finding import CheckedSource, Finding, Status


@dataclass(frozen=True)
class CheckResult:
    """One line of `penstock check`. ``remedy`` is "" where there is nothing to do."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


_SOURCE_CHECKS: tuple[tuple[str, Callable[[CheckedSource], Finding]], ...] = (
    ("primary server", server_checks.primary),
    ("wal_level", server_checks.wal_level),
    ("replication privilege", server_checks.replication_privilege),
    ("replication connection", server_checks.replication_connection),
    ("replication slots", server_checks.free_slots),
    ("WAL senders", server_checks.free_senders),
    ("sender timeout", server_checks.sender_timeout),
    ("WAL kept for slots", server_checks.kept_wal),
    ("idle slot timeout", server_checks.idle_slot_timeout),
    ("tables", table_checks.tables),
    ("replica identity", table_checks.replica_identity),
    ("publication", table_checks.publication),
    ("publication privilege", table_checks.publication_privilege),
    ("table ownership", table_checks.ownership),
    ("table reading", table_checks.reading),
    ("schema changes", server_checks.schema_changes),
    ("slot", server_checks.slot),
)


def run_checks(config: PipelineConfig) -> list[CheckResult]:
    """Every check with its result, in order. Reads only; an expected failure is a result.

    A check that cannot run because an earlier one failed is ``skipped`` and says why.
    """
    results: list[CheckResult] = []
    try:
        conn = connect(config.source.url, application_name=f"penstock {config.name} check")
    except SourceError as error:
        results.append(CheckResult("connection", "failed", error.message, error.remedy))
        results += _skip("server version", *_names(), why="there is no connection")
    else:
        with conn:
            where = f"connected to {config.source.url}"
            results.append(CheckResult("connection", "passed", where))
            results += _check_source(CheckedSource(conn, config))
    results.append(check_change_log(config.change_log))
    return results


def require_passed(results: list[CheckResult]) -> None:
    """Raise CheckFailed that repeats every failed result and its remedy."""
    failed = [result for result in results if result.status == "failed"]
    if failed:
        raise CheckFailed(
            "\n".join(
                ["The source is not ready; nothing was created."]
                + [f"  {result.name}: {result.detail}" for result in failed]
            ),
            remedy="\n".join(result.remedy for result in failed if result.remedy),
        )


def _names() -> list[str]:
    return [name for name, _ in _SOURCE_CHECKS]


def _skip(*names: str, why: str) -> list[CheckResult]:
    return [CheckResult(name, "skipped", f"not checked: {why}") for name in names]


def _check_source(source: CheckedSource) -> list[CheckResult]:
    version = CheckResult("server version", *server_checks.version(source))
    if version.status == "failed":
        # The catalogue of such a server is not what the other checks read.
        return [version, *_skip(*_names(), why="the server's version is not supported")]
    results = [version]
    for name, check in _SOURCE_CHECKS:
        if source.conn.broken:
            results += _skip(name, why="the connection was lost")
            continue
        try:
            results.append(CheckResult(name, *check(source)))
        except PenstockError as error:
            results.append(CheckResult(name, "failed", error.message, error.remedy))
        except psycopg.Error as error:
            said = without_secrets(str(error), source.config.source.url)
            results.append(
                CheckResult(
                    name,
                    "failed",
                    f"the source refused to answer: {said}",
                    "Correct what the message names, then check again.",
                )
            )
    return results


def check_change_log(config: ChangeLogConfig) -> CheckResult:
    """Whether its place can be used. For every kind of source."""
    return CheckResult("change log", *_change_log(config))


def _change_log(config: ChangeLogConfig) -> Finding:
    if not config.is_remote:
        return _log_folder(config.path)
    try:
        check_objects(ChangeLog.of(config).root)
    except PenstockError as error:
        return Finding("failed", error.message, error.remedy)
    return Finding("passed", f"{config.path} can be read and written")


def _log_folder(path: str) -> Finding:
    folder = Path(path.removeprefix("file://"))
    if folder.exists() and not folder.is_dir():
        return Finding("failed", f"{path} is a file", "Set change_log.path to a folder.")
    # The folder itself is made by the first run: checking must not create anything.
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            "failed",
            f"{existing} is not writable for this user, so {path} cannot be used",
            f"Set change_log.path to a folder you own, or allow writing to {existing}.",
        )
    return Finding("passed", f"{path} can be written")
