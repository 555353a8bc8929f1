"""What identifies a row of a table in the events that tell of it."""

from __future__ import annotations

from penstock.model.table_definition import TableDefinition
from penstock.model.table_schema import TableSchema


def identity_of(table: TableDefinition) -> tuple[str, ...]:
    """The columns of the primary key, else of a unique index over columns that are never null;
    empty where there is none. Only what the stream brings counts.

    With REPLICA IDENTITY USING INDEX it is that index: deletes tell of no other columns.
    """
    published = {column.name for column in table.columns if column.is_delivered}
    by_index = table.replica_identity == "i"
    candidates = (table.identity_key,) if by_index else (table.primary_key, *table.unique_keys)
    return next((key for key in candidates if key and published.issuperset(key)), ())


def identity_columns(table: TableSchema, names: tuple[str, ...] | None = None) -> tuple[int, ...]:
    """Where the columns of these names stand in rows of the stream.

    Without names, or where rows lack one of them, the replica identity counts; REPLICA IDENTITY
    FULL names no key. It counts, too, where old rows do not hold all of the names: a delete tells
    nothing else of its row, and the row is gone, so nobody can be asked.
    """
    told = () if table.replica_identity == "f" else table.key_columns
    places = {column.name: place for place, column in enumerate(table.columns)}
    if not names or not all(name in places for name in names):
        return told
    found = tuple(places[name] for name in names)
    held = table.replica_identity in ("f", "n") or all(table.columns[at].is_key for at in found)
    return found if held or not told else told
