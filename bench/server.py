"""The Postgres under measurement: its settings, a database a workload, slots, walsenders."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml
from psycopg import sql

from bench.process_usage import server_cpu_seconds, usage
from penstock.config.load import load_pipeline
from penstock.config.models import PipelineConfig
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import PenstockError
from penstock.source.contract import Subscription
from penstock.source.postgres.subscription.subscription import ensure_subscription

# As on a real server, fsync stays on. What would run in the background during a measurement is
# off or postponed; each workload vacuums and checkpoints before it is measured.
SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "32GB",
    # What exists of the WAL's files is used again, and not removed and made anew.
    "min_wal_size": "4GB",
    "checkpoint_timeout": "1h",
    "logical_decoding_work_mem": "256MB",
    "autovacuum": "off",
    "max_connections": "100",
    "max_replication_slots": "100",
    "max_wal_senders": "20",
}

_SEGMENTS_OF_MIN_WAL_SIZE = 256
_POLL_SECONDS = 0.002
_START_PATIENCE_SECONDS = 120.0


class BenchError(PenstockError):
    """A measurement could not be made."""


@dataclass(frozen=True)
class BenchPipeline:
    """A pipeline with its subscription made and nothing read from it yet."""

    file: Path
    config: PipelineConfig
    subscription: Subscription

    @property
    def slot(self) -> str:
        return self.subscription.slot


@dataclass(frozen=True)
class Walsender:
    """The server's process behind a slot, and when it was first seen (seconds since 1970)."""

    pid: int
    since: float

    def cpu_seconds(self) -> float:
        return usage(self.pid).cpu_seconds


@dataclass(frozen=True)
class BenchDatabase:
    """One workload's database on the embedded server."""

    server: EmbeddedPostgres
    name: str
    folder: Path
    conn: psycopg.Connection[tuple[Any, ...]]

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def pipeline(
        self,
        name: str,
        destination: Mapping[str, Any] | None = None,
        parts: Mapping[str, Any] = {},
        **change_log: Any,
    ) -> BenchPipeline:
        """A pipeline over the tables of schema public, into ``discard`` unless told otherwise.
        ``parts`` are further ones of its file.
        """
        file, config = self.pipeline_file(
            name,
            destination or {"type": "discard"},
            copy=False,
            change_log=change_log,
            parts=parts,
        )
        return BenchPipeline(file, config, ensure_subscription(self.conn, config))

    def pipeline_file(
        self,
        name: str,
        destination: Mapping[str, Any],
        *,
        copy: bool | Mapping[str, int | str],
        change_log: Mapping[str, Any] = {},
        parts: Mapping[str, Any] = {},
    ) -> tuple[Path, PipelineConfig]:
        """The file alone, over the tables of schema public; nothing is made in the source."""
        file = self.folder / f"{name}.yaml"
        content = {
            "name": name,
            "source": {
                "url": self.url,
                "tables": {"include": ["public.*"]},
                "copy": copy if isinstance(copy, bool) else dict(copy),
                "messages": ["bench"],
            },
            "change_log": {"path": f"log_{name}", **change_log},
            "destination": dict(destination),
            **parts,
        }
        file.write_text(yaml.safe_dump(content))
        return file, load_pipeline(file)

    def cpu_seconds(self) -> float:
        """What the whole server has used so far, but for our own questions to it."""
        return server_cpu_seconds(self.server.pid, self.conn.info.backend_pid)

    def settle(self) -> None:
        """Do now what the server would else do in the background."""
        self.conn.execute("VACUUM ANALYZE")
        self.conn.execute("CHECKPOINT")

    def walsender(self, slot: str, alive: Callable[[], None]) -> Walsender:
        """Wait until somebody streams from the slot; ``alive`` raises if nobody will."""
        deadline = time.monotonic() + _START_PATIENCE_SECONDS
        while time.monotonic() < deadline:
            pid = self._active_pid(slot)
            if pid is not None:
                return Walsender(pid, time.time())
            alive()
            time.sleep(_POLL_SECONDS)
        raise BenchError(
            f"Nobody began to read from slot {slot} within {_START_PATIENCE_SECONDS:g} s.",
            remedy="Look at what was printed above, and whether the machine is overloaded.",
        )

    def copy_slot(self, slot: str, copy: str) -> None:
        """Another slot at the same place, for a reader that must not move the first."""
        self.conn.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [slot, copy])

    def drop_slot(self, slot: str) -> None:
        """Drop a slot whose reader has been stopped."""
        deadline = time.monotonic() + _START_PATIENCE_SECONDS
        while self._active_pid(slot) is not None:
            if time.monotonic() > deadline:
                raise BenchError(
                    f"Slot {slot} is still in use {_START_PATIENCE_SECONDS:g} s after its reader "
                    "was stopped.",
                    remedy="Run the benchmark again; if it recurs, it is a bug of Penstock.",
                )
            time.sleep(_POLL_SECONDS)
        self.conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])

    def confirmed_flush(self, slot: str) -> str:
        row = self.conn.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
            [slot],
        ).fetchone()
        if row is None:
            raise BenchError(f"Slot {slot} is gone.", remedy="Nobody else may use this server.")
        return str(row[0])

    def client_environment(self) -> dict[str, str]:
        """For the server's own client programs."""
        library = str(self.server.bin_dir.parent / "lib")
        return {"PATH": os.environ.get("PATH", os.defpath), "LD_LIBRARY_PATH": library}

    def _active_pid(self, slot: str) -> int | None:
        row = self.conn.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
        return None if row is None else row[0]


def make_wal_files(server: EmbeddedPostgres, scale: float) -> None:
    """Let the server make its WAL's files now, so that it is not the first system to be measured
    that waits for them; about as many as the largest workload fills.
    """
    segments = min(_SEGMENTS_OF_MIN_WAL_SIZE, 16 + round(_SEGMENTS_OF_MIN_WAL_SIZE * scale))
    body = sql.SQL(
        "BEGIN FOR n IN 1 .. {} LOOP PERFORM pg_logical_emit_message(false, 'bench', 'fill');"
        " PERFORM pg_switch_wal(); END LOOP; END"
    ).format(sql.Literal(segments))
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(sql.SQL("DO {}").format(sql.Literal(body.as_string(conn))))
        conn.execute("CHECKPOINT")


@contextmanager
def bench_database(server: EmbeddedPostgres, name: str, folder: Path) -> Iterator[BenchDatabase]:
    """A fresh database; it goes afterwards with its slots, so that their WAL can go too."""
    url = server.create_database(name)
    with psycopg.connect(url, autocommit=True) as conn:
        yield BenchDatabase(server, name, folder, conn)
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            [name],
        )
        conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        conn.execute("CHECKPOINT")
