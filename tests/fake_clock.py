"""A wall clock that jumps, for the processes that a test starts: libfaketime."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_LIBRARY = "faketime/libfaketimeMT.so.1"


class FakeClock:
    """What processes that were started with ``environment`` take for the time of day. The clock
    that only ever goes on is left alone, and so are the times of files: a jump moves neither.
    """

    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            # A killed process would leave it.
            "FAKETIME_DISABLE_SHM": "1",
        }
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Be that far from the true time, from about a second from now on."""
        # At once and whole: somebody reads it all the time.
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._file)


def find_libfaketime() -> Path | None:
    """The library, installed where that is possible; None if not."""
    found = _find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update", "-qq"], ["install", "-y", "-qq", "faketime"]):
            subprocess.run(
                ["apt-get", *arguments], env=environment, capture_output=True, check=False
            )
        found = _find()
    return found


def _find() -> Path | None:
    return next(Path("/usr/lib").glob(f"*/{_LIBRARY}"), None)
