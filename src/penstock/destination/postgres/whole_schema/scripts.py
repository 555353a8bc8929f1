"""SQL of an archive's entries, as pg_restore writes it, run entry by entry where one is refused."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from penstock.destination.postgres.sessions.session import Connection, is_passing, said
from penstock.destination.protocols import Unrestored
from penstock.model.errors import DestinationError
from penstock.source.postgres.whole_schema.archive import Entry
from penstock.source.postgres.whole_schema.programs import find_programs

# What every script begins with: our session has settings of its own, and older servers do not know
# all of them. Lines with a backslash are for psql.
_PROLOGUE = re.compile(
    r"\s*$|--|\\restrict |SELECT pg_catalog\.set_config\('search_path'"
    r"|SET (?:statement_timeout|lock_timeout|idle_in_transaction_session_timeout"
    r"|transaction_timeout|client_encoding|standard_conforming_strings|check_function_bodies"
    r"|xmloption|client_min_messages|row_security) ="
)
_SECONDS = 600.0


class Scripts:
    """Asks pg_restore for the SQL of some entries; inside ``with``."""

    def __init__(
        self, archive: bytes, *, programs: str | None, owner: bool, privileges: bool
    ) -> None:
        self._archive = archive
        self._program = find_programs(0, programs).pg_restore
        self._owner = owner
        self._privileges = privileges
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-schema-")
        (Path(self._folder.name) / "archive").write_bytes(self._archive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._folder is not None  # noqa: S101 (entered)
        self._folder.cleanup()

    @property
    def has_owners(self) -> bool:
        return self._owner

    def of(self, entries: Sequence[Entry], *, bare: bool = False) -> str:
        """The statements of these entries; ``bare``: without their owners."""
        assert self._folder is not None  # noqa: S101 (entered)
        folder = Path(self._folder.name)
        wanted = folder / "list"
        wanted.write_text("".join(f"{entry.id};\n" for entry in entries))
        arguments = [
            *(self._program, f"--use-list={wanted}", "--file=-", "--no-tablespaces"),
            *(() if self._owner and not bare else ("--no-owner",)),
            *(() if self._privileges else ("--no-privileges",)),
            str(folder / "archive"),
        ]
        answer = subprocess.run(arguments, capture_output=True, timeout=_SECONDS, check=False)
        if answer.returncode:
            why = " ".join(answer.stderr.decode(errors="replace").split())
            raise DestinationError(
                f"pg_restore cannot read the source's schema: {why[:600]}",
                remedy="use the pg_restore that comes with the pg_dump which wrote it:"
                " destination.full_schema.programs names the folder of both",
            )
        return _without_prologue(answer.stdout.decode())


def restore(conn: Connection, scripts: Scripts, entries: Sequence[Entry]) -> list[Unrestored]:
    """Make the entries inside the caller's transaction; returns those that were refused.

    All at once first. Where that is refused, in halves, so that the ones at fault are found: the
    server alone reads the statements, and none is cut out of a text.
    """
    if not entries:
        return []
    error = attempt(conn, scripts.of(entries))
    if error is None:
        return []
    if len(entries) > 1:
        middle = len(entries) // 2
        first = restore(conn, scripts, entries[:middle])
        return first + restore(conn, scripts, entries[middle:])
    (entry,) = entries
    if scripts.has_owners and attempt(conn, scripts.of(entries, bare=True)) is None:
        return [Unrestored(f"owner of {entry.title}", f"-- owner: {entry.owner}", said(error))]
    return [unrestored(entry, error)]


def unrestored(entry: Entry, error: psycopg.Error) -> Unrestored:
    return Unrestored(entry.title, entry.shown, said(error))


def attempt(conn: Connection, script: str) -> psycopg.Error | None:
    """Run a script inside the caller's transaction, all of it or nothing; why it was refused."""
    try:
        with conn.transaction():
            conn.execute(script.encode(), prepare=False)
    except psycopg.Error as error:
        if is_passing(error):
            raise
        return error
    return None


def _without_prologue(script: str) -> str:
    lines = script.split("\n")
    begin = next((n for n, line in enumerate(lines) if not _PROLOGUE.match(line)), len(lines))
    while lines and (not lines[-1].strip() or lines[-1].startswith("\\unrestrict ")):
        lines.pop()
    return "\n".join(lines[begin:])
