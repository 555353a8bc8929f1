"""Makes the golden messages anew, with a real Debezium engine. Needs Java 17, Maven and minutes.

Run from the repository's root: ``python -m tests.golden.debezium.regenerate [SCENARIO …]``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from penstock.embedded.postgres import EmbeddedPostgres
from tests.golden.debezium.scenarios import DATABASE, FOLDER, SCENARIOS, SERVER, Scenario

JARS = FOLDER.parents[2] / ".cache" / "debezium"
MARKER = "golden_marker"
_SECONDS = 120


def main() -> None:
    wanted = sys.argv[1:] or [scenario.name for scenario in SCENARIOS]
    if unknown := set(wanted) - {scenario.name for scenario in SCENARIOS}:
        sys.exit(f"no such scenario: {', '.join(sorted(unknown))}")
    fetch_jars()
    for scenario in SCENARIOS:
        if scenario.name in wanted:
            # A server of its own each: neither slots nor oids of another scenario are there.
            with EmbeddedPostgres(settings={"fsync": "off"}) as server:
                url = server.create_database(DATABASE)
                print(scenario.name, regenerate(scenario, url, server.port), flush=True)


def fetch_jars() -> None:
    """Once a version: the folder's copy of the pom says which one it holds."""
    pom, fetched = FOLDER / "pom.xml", JARS / "pom.xml"
    if fetched.exists() and fetched.read_bytes() == pom.read_bytes():
        return
    shutil.rmtree(JARS, ignore_errors=True)
    subprocess.run(
        [
            *("mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"),
            *(f"-DoutputDirectory={JARS / 'lib'}", "-DincludeScope=runtime"),
        ],
        check=True,
    )
    shutil.copy(pom, fetched)


def regenerate(scenario: Scenario, url: str, port: int) -> int:
    """Run one scenario and store its messages; says how many."""
    before, streamed = scenario.statements()
    with (
        psycopg.connect(url, autocommit=True) as conn,
        tempfile.TemporaryDirectory(prefix="penstock-golden-") as folder,
    ):
        for statement in (*before, f"CREATE TABLE {MARKER} (id integer PRIMARY KEY)"):
            conn.execute(statement.encode())
        settings, lines, log = (Path(folder) / name for name in ("settings", "lines", "log"))
        settings.write_text(_properties(scenario, port, Path(folder)))
        with log.open("wb") as output:
            engine = subprocess.Popen(
                [
                    *(
                        "java",
                        "-XX:TieredStopAtLevel=1",
                        "-cp",
                        f"{JARS / 'lib'}/*",
                        str(FOLDER / "GoldenEngine.java"),
                    ),
                    *(str(settings), str(lines), f"{SERVER}.public.{MARKER}"),
                ],
                stdout=output,
                stderr=output,
            )
        try:
            _wait_for_stream(conn, engine, log)
            for statement in (*streamed, f"INSERT INTO {MARKER} SELECT 1"):
                conn.execute(statement.encode())
            code = engine.wait(_SECONDS)
        finally:
            engine.kill()
            engine.wait()
        if code:
            sys.exit(f"{scenario.name}: the engine ended with {code}\n{log.read_text()[-5000:]}")
        scenario.messages.parent.mkdir(exist_ok=True)
        shutil.copyfile(lines, scenario.messages)
    return len(scenario.messages.read_text().splitlines())


def _wait_for_stream(conn: psycopg.Connection, engine: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while not conn.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchone():
        if engine.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the engine does not stream:\n{log.read_text()[-5000:]}")
        time.sleep(0.05)


def _properties(scenario: Scenario, port: int, folder: Path) -> str:
    settings = {
        "name": "golden",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "0",
        "topic.prefix": SERVER,
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": DATABASE,
        "snapshot.mode": "no_data",
        "converter.schemas.enable": "false",
        # Headers of the engine itself (task, run) would differ each time.
        "extended.headers.enabled": "false",
        **scenario.settings,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


if __name__ == "__main__":
    main()
