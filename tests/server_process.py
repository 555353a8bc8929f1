"""A server of a test's own, as a process with a temporary folder: it starts, dies and is gone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

MEMORY = Path("/dev/shm")  # noqa: S108 (made with mkdtemp)
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.1


class ServerProcess(ABC):
    """Inside ``with`` it runs; afterwards server and data are gone. It may be killed and started
    again meanwhile: address and data stay.
    """

    start_seconds: ClassVar[float] = 60.0

    def __init__(self, *, on_disk: bool = True) -> None:
        """``on_disk``: its folder is not in memory."""
        self._on_disk = on_disk
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def title(self) -> str:
        """What errors call it."""

    @abstractmethod
    def configure(self) -> None:
        """Called once, when its folder is there and empty."""

    @abstractmethod
    def command(self) -> list[str]:
        """What runs it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether clients are served by now."""

    @property
    def environment(self) -> Mapping[str, str] | None:
        """What it runs in; None for our own."""
        return None

    @property
    def working_folder(self) -> Path:
        return self.folder

    @property
    def folder(self) -> Path:
        assert self._folder is not None
        return self._folder

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and return when it answers; no effect while it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._folder is None:
            place = MEMORY if MEMORY.is_dir() and not self._on_disk else None
            prefix = f"penstock-{self.title.lower()}-"
            self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            self.configure()
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.working_folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            if self.answers():
                return
            time.sleep(_LOOK_SECONDS)
        tail = (self._folder / "server.log").read_text(errors="replace")[-3000:]
        self.kill()
        raise RuntimeError(f"{self.title} did not start; its log ends with:\n{tail}")

    def stop(self) -> None:
        """Stop it in order, and keep its data."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would, and keep its data."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End it and remove its data, which nobody reads again."""
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

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
