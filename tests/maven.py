"""Maven, by which tests fetch servers that no Python package brings."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


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
