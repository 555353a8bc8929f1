"""The table of contents of what `pg_dump -Fc` writes. No I/O.

The format is that of pg_dump's own sources (pg_backup_archiver.c, ReadHead and ReadToc): numbers
are a sign byte and bytes from the lowest on, texts a length and bytes, -1 for none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from penstock.model.errors import SourceError

Section = Literal["pre", "data", "post"]

_MAGIC = b"PGDMP"
_CUSTOM = 1
_SECTIONS: dict[int, Section] = {2: "pre", 3: "data", 4: "post"}
_OLDEST, _NEWEST = (1, 14), (1, 16)


# Their options hold what it takes to get into another server.
_WITH_SECRETS = {"FOREIGN DATA WRAPPER", "SERVER", "SUBSCRIPTION", "USER MAPPING"}
_LITERAL = re.compile(r"'(?:[^']|'')*'")


@dataclass(frozen=True)
class Entry:
    """One object of the archive. ``kind`` is pg_dump's word, such as MATERIALIZED VIEW.

    ``catalogue`` and ``oid`` say what it is in the source, 0 where it is a part of something else.
    ``section`` of a comment or a grant is that of what it is on.
    """

    id: int
    catalogue: int
    oid: int
    kind: str
    schema: str
    name: str
    owner: str
    section: Section
    statement: str
    drop: str
    needs: tuple[int, ...]

    @property
    def title(self) -> str:
        """What to call it in a list."""
        where = f"{self.schema}." if self.schema else ""
        return f"{self.kind.lower()} {where}{self.name}"

    @property
    def shown(self) -> str:
        """The statement for logs and lists: passwords of other servers are blank in it."""
        said = self.statement.strip()
        return _LITERAL.sub("'***'", said) if self.kind in _WITH_SECRETS else said


def read_entries(archive: bytes) -> list[Entry]:
    """All entries, in the order in which they can be made. Raises SourceError."""
    try:
        return _Reader(archive).entries()
    except (IndexError, ValueError) as error:
        raise SourceError(
            f"What pg_dump wrote cannot be read: {error}.",
            remedy="This is a defect to report, with the output of `pg_dump --version`.",
        ) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def entries(self) -> list[Entry]:
        self._head()
        section: Section = "pre"
        entries = []
        for _ in range(self._number()):
            entry = self._entry(section)
            section = entry.section
            entries.append(entry)
        return entries

    def _head(self) -> None:
        if self._bytes(5) != _MAGIC:
            raise ValueError("it does not begin as an archive does")
        self._version = (self._byte(), self._byte())
        self._byte()
        self._number_bytes, self._offset_bytes, kind = self._byte(), self._byte(), self._byte()
        if kind != _CUSTOM:
            raise ValueError(f"its format is {kind}, not the custom one")
        if not _OLDEST <= self._version <= _NEWEST:
            raise ValueError(f"its version is {self._version[0]}.{self._version[1]}")
        # How it is compressed: a byte, or before 1.15 a number.
        if self._version >= (1, 15):
            self._byte()
        else:
            self._number()
        for _ in range(7):
            self._number()  # when it was made
        for _ in range(3):
            self._text()  # database, and the versions of server and pg_dump

    def _entry(self, before: Section) -> Entry:
        number = self._number()
        self._number()  # whether it has data
        catalogue, oid = int(self._text() or 0), int(self._text() or 0)
        name, kind = self._text() or "", self._text() or ""
        section = _SECTIONS.get(self._number(), before)
        statement, drop = self._text() or "", self._text() or ""
        self._text()  # COPY
        schema = self._text() or ""
        self._text()  # tablespace
        self._text()  # access method
        if self._version >= (1, 16):
            self._number()  # relkind
        owner = self._text() or ""
        self._text()  # whether it has oids
        needs = []
        while (needed := self._text()) is not None:
            needs.append(int(needed))
        self._bytes(1 + self._offset_bytes)  # where its data are
        return Entry(
            number,
            catalogue,
            oid,
            kind,
            schema,
            name,
            owner,
            section,
            statement,
            drop,
            tuple(needs),
        )

    def _bytes(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) != count:
            raise ValueError("it is cut short")
        self._at += count
        return found

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _number(self) -> int:
        negative = self._byte()
        value = int.from_bytes(self._bytes(self._number_bytes), "little")
        return -value if negative else value

    def _text(self) -> str | None:
        length = self._number()
        return None if length < 0 else self._bytes(length).decode()
