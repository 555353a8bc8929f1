"""Debian's packages, by which tests fetch servers that neither PyPI nor Maven bring."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.maven import fetching


def unpacked(wanted: str, packages: Sequence[str], cache: Path) -> Path:
    """The folder below which these packages lie, fetched on first use and installed nowhere.
    Skips, and says what for, where there is no apt.
    """
    folder = cache / "unpacked"
    with fetching(cache):
        if not folder.is_dir():
            _fetch(wanted, packages, cache, folder)
    return folder


def _fetch(wanted: str, packages: Sequence[str], cache: Path, folder: Path) -> None:
    apt = shutil.which("apt-get")
    if apt is None or shutil.which("dpkg-deb") is None:
        pytest.skip(f"{wanted} is fetched with apt-get, which is not on PATH")
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as text:
        work = Path(text)
        said = _download(apt, packages, work)
        if said and os.geteuid() == 0:
            # A fresh machine knows no packages before it is told of them.
            subprocess.run([apt, "update", "-qq"], capture_output=True, check=False)
            said = _download(apt, packages, work)
        if said:
            pytest.skip(f"{wanted} could not be fetched: {said}")
        made = work / "made"
        for package in work.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(made)], check=True)
        # Renamed when complete, so that a broken download is never taken for a server.
        made.rename(folder)


def _download(apt: str, packages: Sequence[str], work: Path) -> str:
    """What went wrong; nothing where all is well."""
    done = subprocess.run(
        [apt, "download", "-qq", *packages], cwd=work, capture_output=True, text=True, check=False
    )
    return done.stderr[-500:] if done.returncode else ""
