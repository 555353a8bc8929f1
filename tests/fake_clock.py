"""A wall clock that jumps, for the processes that a test starts: fake_clock.c, preloaded.

libfaketime would do, but that of Debian 12 lets time.sleep of Python fail where it leaves the
monotonic clock alone.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


class FakeClock:
    """What processes that were started with ``environment`` take for the time of day."""

    def __init__(self, folder: Path, compiler: str) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(struct.pack("l", 0))
        library = folder / "fake_clock.so"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl", "-lpthread"],
            check=True,
        )
        self.environment = {"LD_PRELOAD": str(library), "FAKE_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Be that far from the true time, at once."""
        # In place: everybody has mapped this very file.
        with self._file.open("r+b", buffering=0) as file:
            file.write(struct.pack("l", seconds))


def find_compiler() -> str | None:
    """A C compiler, installed where that is possible; None if not."""
    found = shutil.which("cc")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update", "-qq"], ["install", "-y", "-qq", "gcc", "libc6-dev"]):
            subprocess.run(
                ["apt-get", *arguments], env=environment, capture_output=True, check=False
            )
        found = shutil.which("cc")
    return found
