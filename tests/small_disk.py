"""A disk that is soon full: a file system of a few megabytes in memory."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

_BALLAST = "ballast"
_BLOCK = b"\0" * 65536


class SmallDisk:
    """Mounted on ``path`` where that is permitted; else ``refused`` says why, and ``path`` is an
    ordinary folder.
    """

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "penstock-test", str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.refused = done.stderr.strip() if done.returncode else ""

    def fill(self) -> None:
        """Leave no byte free."""
        assert not self.refused, "an ordinary folder is not to be filled"
        with (self.path / _BALLAST).open("wb", buffering=0) as file:
            block = _BLOCK
            while block:
                try:
                    file.write(block)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    block = block[: len(block) // 2]

    def free(self) -> None:
        (self.path / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it, whoever still has files open there."""
        if not self.refused:
            subprocess.run(["umount", "-l", str(self.path)], check=False)
