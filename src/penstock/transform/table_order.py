"""The changes of one table in the order of their making, in the columns that are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np

from penstock.decode.changes import TableChanges
from penstock.model.errors import TableChanged
from penstock.model.table_definition import Announced
from penstock.model.table_schema import TableSchema


def in_table_order(tables: Sequence[TableChanges]) -> Iterator[TableChanges]:
    """The changes of a run with each table's in position order.

    A table whose definition changed in the run and changed back is there twice, interleaved.
    """
    by_table: dict[int, list[TableChanges]] = {}
    for changes in tables:
        by_table.setdefault(changes.table.oid, []).append(changes)
    for versions in by_table.values():
        if len(versions) == 1:
            yield versions[0]
        else:
            yield from _interleaved(versions)


def _interleaved(versions: Sequence[TableChanges]) -> Iterator[TableChanges]:
    which = np.repeat(np.arange(len(versions)), [len(changes) for changes in versions])
    place = np.concatenate([np.arange(len(changes)) for changes in versions])
    commit_lsn = np.concatenate([changes.commit_lsn for changes in versions])
    ordinal = np.concatenate([changes.ordinal for changes in versions])
    order = np.lexsort((ordinal, commit_lsn))
    which, place = which[order], place[order]
    bounds = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)]
    for first, last in pairwise(bounds):
        yield versions[which[first]].part(int(place[first]), int(place[last - 1]) + 1)


def after(changes: TableChanges, ends: Sequence[tuple[int, int]]) -> TableChanges:
    """The changes that stand behind all of these positions, those of TRUNCATEs."""
    if not ends:
        return changes
    commit_lsn, ordinal = max(ends)
    later = (changes.commit_lsn > commit_lsn) | (
        (changes.commit_lsn == commit_lsn) & (changes.ordinal > ordinal)
    )
    # They stand in position order.
    return changes.part(int(len(later) - later.sum()), len(later))


def column_places(
    columns: Sequence[str],
    table: TableSchema,
    commit_lsn: int = 0,
    left_out: Collection[str] = (),
) -> list[int]:
    """For each column of a target its place in the table as the stream announced it. ``left_out``
    are columns that rows may come with and that the target does not have.

    Raises TableChanged, for rows that were committed at ``commit_lsn``, where they do not fit.
    """
    places = {column.name: index for index, column in enumerate(table.columns)}
    wanted, left_out = set(columns), set(left_out)
    if set(places) - left_out != wanted:
        missing = sorted(wanted - set(places))
        new = sorted(set(places) - left_out - wanted)
        raise _changed(
            table,
            "; ".join(
                f"columns {what}: {', '.join(names)}"
                for what, names in (("gone", missing), ("new", new))
                if names
            ),
            commit_lsn,
        )
    return [places[name] for name in columns]


def expect_announced(
    table: TableSchema,
    announced: Sequence[Announced],
    key: Collection[str],
    commit_lsn: int = 0,
) -> None:
    """Compare a table as the stream announced it with what the target was made for: a column is
    another one if its type or its place is, whatever it is called. ``key`` are the columns that
    rows are found by.

    Raises TableChanged, for rows that were committed at ``commit_lsn``, where they differ.
    """
    found = {column.name: column for column in table.columns}
    order = [column.name for column in table.columns if column.name in {a.name for a in announced}]
    if order != [name for name, _, _ in announced if name in found]:
        raise _changed(table, f"its columns come as {', '.join(order)}", commit_lsn)
    others = [
        name
        for name, type_oid, typmod in announced
        if name in found
        and (found[name].type.oid != type_oid or typmod not in (None, found[name].typmod))
    ]
    if others:
        raise _changed(table, f"columns of another type: {', '.join(others)}", commit_lsn)
    identity = {column.name for column in table.columns if column.is_key}
    if table.replica_identity in ("d", "i") and not identity.issuperset(key):
        names = ", ".join(sorted(identity)) or "nothing"
        raise _changed(table, f"its rows are identified by {names}", commit_lsn)


def _changed(table: TableSchema, what: str, commit_lsn: int) -> TableChanged:
    return TableChanged(
        f"table {table.qualified_name} has changed at the source: {what}",
        remedy="copy it anew: `penstock tables resync`; or change the target in the same way, "
        f"then run `penstock tables retry` for {table.qualified_name}",
        table=table.oid,
        commit_lsn=commit_lsn,
    )
