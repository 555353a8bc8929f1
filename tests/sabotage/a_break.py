"""One deliberate break: what is replaced in the source, and which tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "src/penstock"


class DoesNotApply(Exception):
    """The source is not what the break expects: it was changed since."""


@dataclass(frozen=True)
class Break:
    """A small change that takes one guarantee away.

    ``guarantee`` is a row of docs/guarantees.md by its first cell, ``without`` says in one sentence
    what no longer holds. ``file`` lies below src/penstock. Each of ``edits`` is a text that occurs
    once in it, and what takes its place. ``noticed_by`` are tests, each by its file below tests
    and its name: all of them have to fail, with some of their parameters unless the name has those.
    ``hangs`` says that they may do so by never ending.
    """

    name: str
    guarantee: str
    without: str
    file: str
    edits: tuple[tuple[str, str], ...]
    noticed_by: tuple[tuple[str, str], ...]
    hangs: bool = False

    @property
    def tests(self) -> tuple[str, ...]:
        """As pytest names them."""
        return tuple(f"tests/{file}::{name}" for file, name in self.noticed_by)

    def broken(self, source: str) -> str:
        """The file's text with the break in it."""
        for old, new in self.edits:
            if (found := source.count(old)) != 1:
                raise DoesNotApply(f"{self.file} has {old!r} {found} times, not once")
            source = source.replace(old, new)
        return source

    def apply(self, root: Path) -> Path:
        """Break the copy of the repository's source below ``root``; the file that was changed."""
        path = root / SOURCE / self.file
        if not path.is_file():
            raise DoesNotApply(f"there is no {SOURCE}/{self.file}")
        path.write_text(self.broken(path.read_text()))
        return path
