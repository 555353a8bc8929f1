"""Debian's packages, by which tests fetch servers that neither PyPI nor Maven bring."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.lacking import lacks
from tests.maven import fetching


def unpacked(
    wanted: str, packages: Sequence[str], cache: Path, *, with_needed: bool = False
) -> Path:
    """The folder below which these packages lie, fetched on first use and installed nowhere.
    ``with_needed``: so do those that they need and that this machine lacks. Where there is no apt
    the test ends, and says what for.
    """
    folder = cache / "unpacked"
    with fetching(cache):
        if not folder.is_dir():
            _fetch(wanted, packages, cache, folder, with_needed=with_needed)
    return folder


def _fetch(
    wanted: str, packages: Sequence[str], cache: Path, folder: Path, *, with_needed: bool
) -> None:
    apt = shutil.which("apt-get")
    if apt is None or shutil.which("dpkg-deb") is None:
        lacks(f"{wanted} is fetched with apt-get, which is not on PATH")
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as text:
        work = Path(text)
        said = _download(apt, packages, work, with_needed=with_needed)
        if said and os.geteuid() == 0:
            # A fresh machine knows no packages before it is told of them.
            subprocess.run([apt, "update", "-qq"], capture_output=True, check=False)
            said = _download(apt, packages, work, with_needed=with_needed)
        if said:
            lacks(f"{wanted} could not be fetched: {said}")
        made = work / "made"
        for package in work.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(made)], check=True)
        # Renamed when complete, so that a broken download is never taken for a server.
        made.rename(folder)


def _download(apt: str, packages: Sequence[str], work: Path, *, with_needed: bool) -> str:
    """What went wrong; nothing where all is well."""
    if with_needed:
        ask = [apt, "install", "--print-uris", "-qq", "--no-install-recommends", *packages]
        told = subprocess.run(ask, capture_output=True, text=True, check=False)
        if told.returncode:
            return told.stderr[-500:]
        # 'address' name_version_architecture.deb size hash
        packages = [line.split()[1].partition("_")[0] for line in told.stdout.splitlines()]
    done = subprocess.run(
        [apt, "download", "-qq", *packages], cwd=work, capture_output=True, text=True, check=False
    )
    return done.stderr[-500:] if done.returncode else ""
