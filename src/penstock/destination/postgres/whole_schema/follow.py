"""What has changed in the source's schema since it was taken, and how that is followed.

Tables that the pipeline follows are changed by the stream, in order with their rows. All else is
compared: what holds no rows is made anew, and what cannot be followed is listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

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
    errors.DuplicateTable,
    errors.DuplicateObject,
    errors.DuplicateSchema,
    errors.InvalidTableDefinition,
)
_ATTACHED = ("CONSTRAINT", "INDEX", "INDEX ATTACH")
_REPLACEABLE = re.compile(r"CREATE (FUNCTION|PROCEDURE|VIEW|RULE|TRIGGER) ")


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
    missing: Collection[str],
    owners: bool,
) -> SchemaChanges:
    """``followed`` are the tables (by oid) that the stream changes, ``there`` the relations that
    the target has already, ``missing`` the titles of what could not be made so far, which is tried
    again. ``owners``: another owner is a change, too.
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
    made: list[tuple[Entry, Entry | None]] = []
    for name, entry in found.items():
        former = known.get(name)
        if former is not None and _says(former, owners) == _says(entry, owners):
            if entry.title in missing:
                made.append((entry, None))
            continue
        if entry.id in types and former is not None:
            is_wanted = False  # the stream tells of it
        elif _is_of_tables(entry):
            is_attached = entry.kind in _ATTACHED and not partitions.isdisjoint(entry.needs)
            is_wanted = not new.isdisjoint(entry.needs) and not is_attached
        elif entry.kind == "TABLE":
            is_wanted = entry.id in new or (former is not None and entry.oid not in followed)
        else:
            is_wanted = former is not None or (entry.schema, entry.name) not in there
        if is_wanted:
            made.append((entry, former))
    gone = [
        entry
        for name, entry in reversed(known.items())
        if name not in found
        and not _is_of_tables(entry)
        and (entry.kind != "TABLE" or entry.oid not in followed)
    ]
    return SchemaChanges(tuple(made), tuple(gone))


def follow_changes(conn: Connection, scripts: Scripts, changes: SchemaChanges) -> list[Unrestored]:
    """Make what changed, inside the caller's transaction; what could not be followed."""
    refused = []
    for entry in changes.gone:
        if entry.kind == "TABLE" or not entry.drop.strip():
            why = "the source has it no more; here it is yours to remove"
            refused.append(Unrestored(entry.title, entry.drop.strip(), why))
        elif (error := attempt(conn, entry.drop)) is not None:
            refused.append(Unrestored(entry.title, entry.drop.strip(), said(error)))
    for entry, former in changes.made:
        if entry.kind == "TABLE" and former is not None:
            why = "it is another one at the source by now, and not followed"
            refused.append(Unrestored(entry.title, entry.statement.strip(), why))
            continue
        error = None
        for script in _ways(entry, former, scripts):
            if (error := attempt(conn, script)) is None:
                break
        if error is not None and not _is_there(entry, former, error):
            refused.append(unrestored(entry, error))
    return refused


def _is_there(entry: Entry, former: Entry | None, error: psycopg.Error) -> bool:
    """Whether it came with a table that was prepared meanwhile, or with the stream."""
    return former is None and entry.kind in _PREPARED and isinstance(error, _DUPLICATES)


def _ways(entry: Entry, former: Entry | None, scripts: Scripts) -> Iterator[str]:
    """How to make it: in place, which keeps what depends on it; else in place of the former."""
    script = scripts.of([entry])
    begin = script.find(entry.statement)
    if former is not None and begin >= 0 and (kind := _REPLACEABLE.match(entry.statement)):
        rest = script[begin + kind.end() :]
        yield f"{script[:begin]}CREATE OR REPLACE {kind[1]} {rest}"
    yield (former.drop if former is not None else "") + script


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


def _is_of_tables(entry: Entry) -> bool:
    # An identity column's sequence has no DROP of its own.
    return entry.kind in _OF_TABLES or (entry.kind == "SEQUENCE" and not entry.drop)


def _says(entry: Entry, owners: bool) -> tuple[str, str]:
    return entry.statement, entry.owner if owners else ""
