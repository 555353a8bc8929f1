"""A pipeline whose servers, files, disks and clock are not what they were: what it takes to do that
to it, and to do what it asks for afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
import yaml

from penstock.changelog.changelog import ChangeLog
from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.copying_pipeline import KEEPING_STEPS, CopyingPipeline
from tests.crash.fault_schedule import PlannedFault
from tests.crash.penstock_run import PATIENCE, PenstockRun
from tests.fake_clock import FakeClock, find_compiler
from tests.fix_pipeline import wait_until
from tests.physical_copies import image_of
from tests.small_disk import SmallDisk
from tests.workload import Workload, run_transactions

SILENCE_SECONDS = 3.0
"""How long the pipeline waits for an answer."""

# Leases and looks are five times as short, so that nobody waits a minute for what a machine left.
_ENVIRONMENT = {"PENSTOCK_CADENCE": "0.2"}
_COPY: dict[str, Any] = {"chunk_bytes": "256KiB"}
_TABLES: dict[str, Any] = {"reconcile": "1s"}
_LIMITS = f"?tcp_user_timeout={SILENCE_SECONDS * 1000:.0f}&connect_timeout=2"
_FIRST_TRANSACTIONS = 50
_LOG_MEGABYTES = 64
_TARGET_MEGABYTES = 192


class IntoTrusted(CopyingPipeline):
    """Change log and destination are on small disks; ``oldest`` is an image of the source from
    before the pipeline's first start.

    The log keeps what was delivered for a minute in every other seed, and for no time in the rest.
    """

    def __init__(
        self, server: EmbeddedPostgres, target: EmbeddedPostgres, folder: Path, seed: int
    ) -> None:
        super().__init__(server, target, folder, seed, copy=_COPY, tables=_TABLES)
        self.reader.judging = False
        self.load = Workload(self.url, seed, pause=0.2, steps=KEEPING_STEPS)
        run_transactions(self.url, seed, _FIRST_TRANSACTIONS)
        self.log_disk = SmallDisk(self.pipeline.folder / "disk", _LOG_MEGABYTES)
        self.target_disk = SmallDisk(target._root / "disk", _TARGET_MEGABYTES)
        if not self.target_disk.refused:
            self._move_target()
        self.pipeline.log = ChangeLog(str(self.log_disk.path / "log"))
        content = yaml.safe_load(self.pipeline.file.read_text())
        content["source"]["url"] += _LIMITS
        content["destination"]["url"] += _LIMITS
        content["change_log"] |= {
            "path": self.pipeline.log.root.path,
            "grace": "60s" if seed % 2 else "0s",
        }
        self.pipeline.file.write_text(yaml.safe_dump(content))
        self.oldest = image_of(server, "oldest")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if error is not None:
                with suppress(OSError):
                    shutil.copytree(self.pipeline.log.root.path, self.pipeline.folder / "log")
            self.log_disk.close()
            self.target_disk.close()

    def _move_target(self) -> None:
        """Put the destination's tables on its small disk."""
        place = self.target_disk.path / "tables"
        place.mkdir(mode=0o700)
        if (account := self.target._account) is not None:
            os.chown(place, account.pw_uid, account.pw_gid)
        with psycopg.connect(self.target.url(), autocommit=True) as conn:
            conn.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
            conn.execute("ALTER DATABASE copy SET TABLESPACE small")

    def start(self, *arguments: str, **environment: str) -> PenstockRun:
        return super().start(*arguments, **{**_ENVIRONMENT, **environment})

    def start_with_clock(self) -> FakeClock | None:
        """Start it with a clock that can jump; None, and no start, where there is none."""
        compiler = find_compiler()
        if compiler is None:
            return None
        clock = FakeClock(self.pipeline.folder, compiler)
        self.start(**clock.environment)
        return clock

    def wait_moment(self, fault: PlannedFault) -> None:
        super().wait_moment(fault)
        if self.run.has_failpoints:
            # One that was not passed by now would end the run in the middle of what comes.
            self.kill()
            self.start()
            self.wait_delivering()

    def kill(self) -> None:
        """End the run, as a crash would."""
        self.run.kill_driver()
        self.run.wait_gone()

    def destroy(self) -> None:
        """What a person does who begins anew; rows that are there may go."""
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "destroy", str(self.pipeline.file), "--yes"],
            env={**os.environ, **_ENVIRONMENT}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        content = yaml.safe_load(self.pipeline.file.read_text())
        content["source"]["copy"]["existing_rows"] = "truncate"
        self.pipeline.file.write_text(yaml.safe_dump(content))

    @contextmanager
    def unjudged(self) -> Iterator[None]:
        """Tables are copied anew inside of the block: readers may see anything meanwhile."""
        self.reader.judging = False
        yield
        self.wait_ready()
        self.reader.judging = True

    def delivers(self) -> bool:
        """Wait until something is delivered that is committed from now on, or the run ends by
        itself; whether it was delivered.
        """
        committed = self.pipeline.wal_end()

        def is_decided() -> bool:
            self.start_again_at_failpoint()
            self.check_watchers()
            return self._is_past(committed) or self.run.exit_code is not None

        wait_until(is_decided, "new changes are delivered, or the run ends", PATIENCE)
        return self._is_past(committed)

    def _is_past(self, lsn: int) -> bool:
        return self.frontier().commit_lsn > lsn

    def settle(self) -> None:
        self.wait_judged()
        self.load.stop()
        self.wait_ready()
        self.wait_delivered()
