"""Copies of a whole server: images that are restored, and standbys."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg

from penstock.embedded.postgres import EmbeddedPostgres
from tests.fix_pipeline import wait_until


def image_of(server: EmbeddedPostgres, name: str = "image") -> Path:
    """A copy of its data, slots and tablespaces included; it is stopped for that, and started
    again.
    """
    server.stop()
    image = server._root / name
    shutil.rmtree(image, ignore_errors=True)
    _copy(server, server._data, image)
    for link in _tablespaces(image):
        kept = _kept(image, link)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(link.resolve(), kept)
    server.start()
    return image


def restore(server: EmbeddedPostgres, image: Path, *, recovers: bool = False) -> None:
    """Put an image in place of its data. ``recovers``: as from a backup, which begins a timeline
    of its own.
    """
    server.stop()
    shutil.rmtree(server._data)
    _copy(server, image, server._data)
    for link in _tablespaces(image):
        place = link.resolve()
        for old in place.iterdir():
            shutil.rmtree(old)
        shutil.copytree(_kept(image, link), place, dirs_exist_ok=True)
        _own(server, *place.rglob("*"))
    if recovers:
        _write(server, server._data / "recovery.signal", "")
        _write(server, server._data / "postgresql.auto.conf", "restore_command = 'false'\n")
    server.start()
    wait_until(lambda: _is_primary(server), "the server has recovered")


def _tablespaces(data: Path) -> list[Path]:
    return [link for link in (data / "pg_tblspc").iterdir() if link.is_symlink()]


def _kept(image: Path, link: Path) -> Path:
    """Where an image has a tablespace."""
    return image.with_name(f"{image.name}-{link.name}")


def _is_primary(server: EmbeddedPostgres) -> bool:
    with psycopg.connect(server.url()) as conn:
        return conn.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


def demote(server: EmbeddedPostgres) -> None:
    """Let it be a standby that has everything, with the slots that it had."""
    server.stop()
    _write(server, server._data / "standby.signal", "")
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
