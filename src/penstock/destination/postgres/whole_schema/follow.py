"""What has changed in the source's schema since it was taken, and how that is followed.

Tables that the pipeline follows are changed by the stream, in order with their rows. All else is
compared: what holds no rows is made anew, and what cannot be followed is listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import errors

from penstock.destination.postgres.sessions.session import Connection, said
from penstock.destination.postgres.whole_schema.scripts import Scripts, attempt, unrestored
from penstock.destination.protocols import Unrestored
from penstock.source.postgres.whole_schema.archive import Entry

# Parts of tables: of those that are followed the stream tells.
_OF_TABLES = {
    "CHECK CONSTRAINT",
    "CONSTRAINT",
    "DEFAULT",
    "FK CONSTRAINT",
    "INDEX",
    "INDEX ATTACH",
    "SEQUENCE OWNED BY",
    "TABLE ATTACH",
}
_TYPES = ("TYPE", "DOMAIN")
# What Penstock makes itself of a table that comes later, and how a second one is refused.
_PREPARED = {*_OF_TABLES, *_TYPES, "TABLE", "SEQUENCE", "SCHEMA"}
_DUPLICATES = (
    errors.DuplicateFunction,
    errors.DuplicateTable,
    errors.DuplicateObject,
    errors.DuplicateSchema,
    errors.InvalidTableDefinition,
)
_ATTACHED = ("CONSTRAINT", "INDEX", "INDEX ATTACH")
_REPLACEABLE = re.compile(r"CREATE (FUNCTION|PROCEDURE|VIEW|RULE|TRIGGER) ")
_DROP = re.compile(r"^(DROP (?:(?!FOR )[A-Z]+ )+)")
# They hold no rows that cannot be made again.
_VIEWS_AND_FUNCTIONS = {"AGGREGATE", "FUNCTION", "MATERIALIZED VIEW", "PROCEDURE", "VIEW"}
_NEVER_LOST = {"EXTENSION", "SCHEMA", "SEQUENCE", "TABLE", *_TYPES}


@dataclass(frozen=True)
class SchemaChanges:
    """``made`` are entries of now that are new or other than before, with those they take the
    place of; ``gone`` the entries of before that are no more, the dependent ones first.
    """

    made: tuple[tuple[Entry, Entry | None], ...]
    gone: tuple[Entry, ...]


def schema_changes(
    before: Sequence[Entry],
    now: Sequence[Entry],
    *,
    followed: Collection[int],
    there: Collection[tuple[str, str]],
    missing: Mapping[str, bool],
    owners: bool,
) -> SchemaChanges:
    """``followed`` are the tables (by oid) that the stream changes, ``there`` the relations that
    the target has already, ``missing`` the titles of what could not be made so far, which is tried
    again, and whether an older one is there, which it is to take the place of. ``owners``: another
    owner is a change, too.
    """
    known, found = _by_name(before), _by_name(now)
    new = {
        entry.id
        for name, entry in found.items()
        if entry.kind == "TABLE" and name not in known and (entry.schema, entry.name) not in there
    }
    # What ATTACH makes itself.
    partitions = {n for entry in now if entry.kind == "TABLE ATTACH" for n in entry.needs} & new
    types = _types_of(now, followed)
    views = _views(now)
    made: list[tuple[Entry, Entry | None]] = []
    for name, entry in found.items():
        former = known.get(name)
        if former is not None and _says(former, owners) == _says(entry, owners):
            if entry.title in missing:
                made.append((entry, former if missing[entry.title] else None))
            continue
        if entry.id in types and former is not None:
            is_wanted = False  # the stream tells of it
        elif _is_of_tables(entry, views):
            is_attached = entry.kind in _ATTACHED and not partitions.isdisjoint(entry.needs)
            is_wanted = not new.isdisjoint(entry.needs) and not is_attached
        elif entry.kind == "TABLE":
            is_wanted = entry.id in new or (former is not None and entry.oid not in followed)
        else:
            is_wanted = former is not None or (entry.schema, entry.name) not in there
        if is_wanted:
            made.append((entry, former))
    former_views = _views(before)
    gone = [
        entry
        for name, entry in reversed(known.items())
        if name not in found
        and not _is_of_tables(entry, former_views)
        and (entry.kind != "TABLE" or entry.oid not in followed)
    ]
    return SchemaChanges(tuple(made), tuple(gone))


def follow_changes(
    conn: Connection,
    scripts: Scripts,
    before: Sequence[Entry],
    now: Sequence[Entry],
    changes: SchemaChanges,
) -> tuple[list[Entry], list[Unrestored]]:
    """Make what changed, inside the caller's transaction; what was made, and what could not be
    followed. ``before`` and ``now`` are all entries that are wanted.
    """
    refused = _drop(conn, changes.gone)
    made = _Making(conn, scripts, before, now, changes.made)
    made.run()
    return made.done, refused + made.refused


def _drop(conn: Connection, gone: Sequence[Entry]) -> list[Unrestored]:
    refused = []
    dropped: set[int] = set()
    for entry in gone:
        if entry.kind != "TABLE" and entry.drop.strip():
            if (error := attempt(conn, entry.drop)) is None:
                dropped.add(entry.id)
            else:
                refused.append(Unrestored(entry.title, entry.drop.strip(), said(error)))
    why = "the source has it no more; here it is yours to remove"
    for entry in gone:
        is_left = entry.kind == "TABLE" or not entry.drop.strip()
        # A comment or a grant went with what it was on.
        if is_left and dropped.isdisjoint(entry.needs):
            refused.append(Unrestored(entry.title, entry.drop.strip(), why))
    return refused


class _Making:
    """Makes entries in the order of the archive. Where one takes the place of another, what lay
    upon that one is made again, too: indexes, comments and grants went with it, and views and
    functions that use it had to go first.
    """

    def __init__(
        self,
        conn: Connection,
        scripts: Scripts,
        before: Sequence[Entry],
        now: Sequence[Entry],
        made: Sequence[tuple[Entry, Entry | None]],
    ) -> None:
        self._conn = conn
        self._scripts = scripts
        self._before = before
        self._now = now
        self._waiting = {entry.id: (entry, former) for entry, former in made}
        self._lost: set[int] = set()
        self.done: list[Entry] = []
        self.refused: list[Unrestored] = []

    def run(self) -> None:
        # Again, where something that stands before was lost meanwhile.
        while self._waiting:
            for each in self._now:
                if each.id in self._waiting:
                    self._make(*self._waiting.pop(each.id))

    def _make(self, entry: Entry, former: Entry | None) -> None:
        if entry.kind == "TABLE" and former is not None:
            why = "it is another one at the source by now, and not followed"
            self.refused.append(Unrestored(entry.title, entry.shown, why, is_older=True))
            return
        script = self._scripts.of([entry])
        is_replaced = former is not None and self._is_replaced(entry, script)
        error = None if is_replaced else self._anew(entry, former, script)
        if error is None:
            self.done.append(entry)
        elif not self._is_there(entry, former, error):
            self.refused.append(replace(unrestored(entry, error), is_older=former is not None))

    def _is_replaced(self, entry: Entry, script: str) -> bool:
        """Make it in place, which keeps what lies upon it; whether that was possible."""
        begin = script.find(entry.statement)
        kind = _REPLACEABLE.match(entry.statement)
        if begin < 0 or kind is None:
            return False
        rest = script[begin + kind.end() :]
        replacing = f"{script[:begin]}CREATE OR REPLACE {kind[1]} {rest}"
        return attempt(self._conn, replacing) is None

    def _anew(self, entry: Entry, former: Entry | None, script: str) -> psycopg.Error | None:
        """In place of the former one; if that is refused, in place of all that uses it as well."""
        if former is None:
            return attempt(self._conn, script)
        error = attempt(self._conn, _dropping(former) + script)
        used = [] if error is None else _upon(former, self._before, _VIEWS_AND_FUNCTIONS)
        if used:
            drops = "".join(map(_dropping, (*reversed(used), former)))
            if attempt(self._conn, drops + script) is not None:
                return error
        elif error is not None:
            return error
        names = _by_name(self._now)
        lost = [names[each] for each in _by_name(used) if each in names]
        for again in (*lost, *(e for each in (entry, *lost) for e in _upon(each, self._now))):
            self._lose(again)
        return None

    def _lose(self, entry: Entry) -> None:
        if entry.kind not in _NEVER_LOST and not _is_of_tables(entry, _views(self._now)):
            self._lost.add(entry.id)
            self._waiting.setdefault(entry.id, (entry, None))

    def _is_there(self, entry: Entry, former: Entry | None, error: psycopg.Error) -> bool:
        """Whether it came with a table that was prepared meanwhile, with the stream, or was not
        lost after all.
        """
        is_made = entry.kind in _PREPARED or entry.id in self._lost
        return former is None and is_made and isinstance(error, _DUPLICATES)


def _dropping(entry: Entry) -> str:
    """Its DROP, also where it is gone already."""
    return _DROP.sub(r"\1IF EXISTS ", entry.drop)


def _upon(
    entry: Entry, entries: Sequence[Entry], kinds: Collection[str] | None = None
) -> list[Entry]:
    """What needs it, also by way of others, in their order; all of it or these kinds."""
    reached = {entry.id}
    found = []
    for each in entries:
        if not reached.isdisjoint(each.needs):
            reached.add(each.id)
            if kinds is None or each.kind in kinds:
                found.append(each)
    return found


def _by_name(entries: Sequence[Entry]) -> dict[tuple[str, str, str], Entry]:
    return {(entry.kind, entry.schema, entry.name): entry for entry in entries}


def _types_of(entries: Sequence[Entry], tables: Collection[int]) -> set[int]:
    """The types that these tables are made of, also those that others are made of."""
    by_id = {entry.id: entry for entry in entries}
    waiting = [n for e in entries if e.kind == "TABLE" and e.oid in tables for n in e.needs]
    types: set[int] = set()
    while waiting:
        entry = by_id.get(waiting.pop())
        if entry is not None and entry.kind in _TYPES and entry.id not in types:
            types.add(entry.id)
            waiting += entry.needs
    return types


def _views(entries: Sequence[Entry]) -> set[int]:
    return {entry.id for entry in entries if entry.kind == "MATERIALIZED VIEW"}


def _is_of_tables(entry: Entry, views: Collection[int]) -> bool:
    """``views`` are those that are materialized: their indexes are no table's."""
    # An identity column's sequence has no DROP of its own.
    is_part = entry.kind in _OF_TABLES or (entry.kind == "SEQUENCE" and not entry.drop)
    return is_part and not any(needed in views for needed in entry.needs)


def _says(entry: Entry, owners: bool) -> tuple[str, str]:
    return entry.statement, entry.owner if owners else ""
