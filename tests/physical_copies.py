"""Copies of a whole server: images that are restored, and standbys."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg

from penstock.embedded.postgres import EmbeddedPostgres
from tests.fix_pipeline import wait_until


def image_of(server: EmbeddedPostgres) -> Path:
    """A copy of its data, slots included; it is stopped for that, and started again."""
    server.stop()
    image = server._root / "image"
    shutil.rmtree(image, ignore_errors=True)
    _copy(server, server._data, image)
    server.start()
    return image


def restore(server: EmbeddedPostgres, image: Path, *, recovers: bool = False) -> None:
    """Put an image in place of its data. ``recovers``: as from a backup, which begins a timeline
    of its own.
    """
    server.stop()
    shutil.rmtree(server._data)
    _copy(server, image, server._data)
    if recovers:
        _write(server, server._data / "recovery.signal", "")
        _write(server, server._data / "postgresql.auto.conf", "restore_command = 'false'\n")
    server.start()


def standby_of(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """Let ``standby``, a server that was just made, follow ``primary``, whose slots it has, too."""
    standby.stop()
    primary.stop()
    port = standby.port
    shutil.rmtree(standby._data)
    _copy(standby, primary._data, standby._data)
    primary.start()
    _write(standby, standby._data / "standby.signal", "")
    with (standby._data / "postgresql.conf").open("a") as conf:
        conf.write(f"port = {port}\nprimary_conninfo = '{primary.url()}'\n")
    standby.start()


def backup_of(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """The same by pg_basebackup, which takes no slots along."""
    standby.stop()
    port = standby.port
    shutil.rmtree(standby._data)
    subprocess.run(
        standby._command(
            "pg_basebackup", "-D", str(standby._data), "-d", primary.url(), "-R", "-c", "fast"
        ),
        cwd=standby._root, env=standby._environment(), check=True,
    )  # fmt: skip
    with (standby._data / "postgresql.conf").open("a") as conf:
        conf.write(f"port = {port}\n")
    standby.start()


def wait_for_standby(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """Until the standby has replayed all that the primary has written."""
    with psycopg.connect(primary.url()) as conn:
        row = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None

    def is_there() -> bool:
        with psycopg.connect(standby.url()) as conn:
            found = conn.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone()
        return found == (True,)

    wait_until(is_there, "the standby has replayed everything")


def promote(standby: EmbeddedPostgres) -> None:
    with psycopg.connect(standby.url(), autocommit=True) as conn:
        assert conn.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)


def _copy(server: EmbeddedPostgres, source: Path, to: Path) -> None:
    shutil.copytree(source, to, symlinks=True)
    (to / "postmaster.pid").unlink(missing_ok=True)
    to.chmod(0o700)
    _own(server, to, *to.rglob("*"))


def _write(server: EmbeddedPostgres, path: Path, text: str) -> None:
    path.write_text(text)
    _own(server, path)


def _own(server: EmbeddedPostgres, *paths: Path) -> None:
    if server._account is not None:
        for path in paths:
            os.chown(path, server._account.pw_uid, server._account.pw_gid)
