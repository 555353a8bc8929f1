"""A ClickHouse engine (chdb) as a server of tests: tests/clickhouse_facade.py in a process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import urllib3

from tests.loopback_server import free_ports

_START_SECONDS = 60.0
_MEMORY = Path("/dev/shm")  # noqa: S108


class ClickHouseServer:
    """Inside ``with`` it runs; afterwards server and data are gone. Its port stays the same."""

    def __init__(self, *, on_disk: bool = False) -> None:
        self._on_disk = on_disk
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and return when it answers; no effect while it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._folder is None:
            place = _MEMORY if _MEMORY.is_dir() and not self._on_disk else None
            self._folder = Path(tempfile.mkdtemp(prefix="penstock-clickhouse-", dir=place))
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.clickhouse_facade"),
                    *(str(self._folder / "data"), str(self.port)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parent.parent,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.1)
        tail = (self._folder / "server.log").read_text(errors="replace")[-3000:]
        self.kill()
        raise RuntimeError(f"the ClickHouse engine did not start; its log ends with:\n{tail}")

    def kill(self) -> None:
        """End it as a crash would, and keep its data."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _answers(self) -> bool:
        try:
            answer = urllib3.request("GET", f"{self.url}/ping", timeout=10, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200
