"""Merges net rows into a table of the lake, with the cheapest statements that they need."""

# ruff: noqa: S608 (names are quoted, values are columns of Arrow)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.destination.ducklake.names import column_names, table_name
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.task_writer import PARK
from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.transform.net_rows import DELETE, INSERT

if TYPE_CHECKING:
    import duckdb

Key = tuple[str, ...]

_ROWS = "penstock_rows"
_WHOLE = "penstock_whole"


def merge_rows(session: duckdb.DuckDBPyConnection, rows: MergedRows) -> Sequence[Key]:
    """Called inside of a transaction; the keys that were parked.

    Raises TableRefused where rows that change are not there: somebody else wrote to the table.
    """
    if rows.emptied:
        session.execute(f"DELETE FROM {table_name(rows.target)}")
    if not len(rows):
        return ()
    is_plain = rows.kind == "counted" and rows.is_plain and rows.columns
    if rows.kind == "counted" and not is_plain:
        _count(session, rows)
        return ()
    if is_plain or (rows.kind == "keyed" and rows.is_all_inserts):
        put_rows(session, rows.target, _values(rows), over=False)
        return ()
    return _merge(session, rows)


def put_rows(
    session: duckdb.DuckDBPyConnection, target: Target, rows: pa.Table, *, over: bool
) -> None:
    """Add rows with columns ``c…``, in place of those with the same key where ``over``."""
    with _registered(session, target, rows):
        if over and target.key:
            same = _same(target, "c")
            session.execute(f"DELETE FROM {table_name(target)} t USING {_ROWS} r WHERE {same}")
        session.execute(f"{_insert(target)} SELECT {_picked(target)} FROM {_ROWS} r")


def _merge(session: duckdb.DuckDBPyConnection, rows: MergedRows) -> list[Key]:
    target, op = rows.target, rows.op
    is_parked = op == PARK
    is_partial = rows.is_partial & ~is_parked & (op != DELETE)
    leaves = (op != INSERT) & ~is_parked
    comes = (op != DELETE) & ~is_parked & ~is_partial
    columns = {f"c{index}": column for index, column in enumerate(rows.columns)}
    columns |= {f"b{i}": column for i, column in zip(target.key, rows.before, strict=True)}
    for index, mask in enumerate(rows.unset):
        if mask is not None:
            columns[f"u{index}"] = pa.array(mask)
    masks = {"partial": is_partial, "leaves": leaves, "comes": comes}
    columns |= {name: pa.array(mask) for name, mask in masks.items()}
    columns["place"] = pa.array(np.arange(len(op)))
    with _registered(session, target, pa.table(columns)):
        if is_partial.any():
            is_parked |= is_partial & ~_keep_old_values(session, rows)
            if rows.kind != "replayed" and is_parked.any():
                raise _not_there(target, int(is_parked.sum()))
        if leaves.any():
            found = session.execute(
                f"DELETE FROM {table_name(target)} t USING {_ROWS} r"
                f" WHERE r.leaves AND {_same(target, 'b')}"
            ).fetchall()
            lacking = int(leaves.sum()) - found[0][0]
            if rows.kind != "replayed" and lacking:
                raise _not_there(target, lacking)
        if comes.any():
            session.execute(
                f"{_insert(target)} SELECT {_picked(target)} FROM {_ROWS} r WHERE r.comes"
            )
        if is_partial.any():
            session.execute(f"{_insert(target)} SELECT {_picked(target)} FROM {_WHOLE} r")
            session.execute(f"DROP TABLE {_WHOLE}")
    return rows.parked(is_parked)


def _keep_old_values(session: duckdb.DuckDBPyConnection, rows: MergedRows) -> np.ndarray:
    """Make whole rows of those that are not, from what is there; which of them were found."""
    target = rows.target
    picked = [
        f"CASE WHEN r.u{index} THEN t.{name} ELSE r.c{index} END AS c{index}"
        if rows.unset[index] is not None
        else f"r.c{index}"
        for index, name in enumerate(column_names(target))
    ]
    session.execute(
        f"CREATE OR REPLACE TEMP TABLE {_WHOLE} AS SELECT r.place, {', '.join(picked)}"
        f" FROM {_ROWS} r JOIN {table_name(target)} t ON {_same(target, 'b')} WHERE r.partial"
    )
    found = session.execute(f"SELECT place FROM {_WHOLE}").fetchnumpy()["place"]
    is_found = np.zeros(len(rows), bool)
    is_found[np.asarray(found, np.int64)] = True
    return is_found


def _count(session: duckdb.DuckDBPyConnection, rows: MergedRows) -> None:
    """Add first: of rows that are equal here some may come and others go."""
    target, count = rows.target, rows.count
    columns = {f"c{index}": column for index, column in enumerate(rows.columns)}
    table = pa.table(columns | {"n": pa.array(count), "row": pa.nulls(len(count), pa.bool_())})
    with _registered(session, target, table):
        if (count > 0).any():
            session.execute(
                f"{_insert(target)} SELECT {_picked(target)} FROM"
                f" (SELECT *, unnest(range(n)) FROM {_ROWS} WHERE n > 0) r"
            )
        wanted = -int(count[count < 0].sum())
        if not wanted:
            return
        same = " AND ".join(
            f"t.{name} IS NOT DISTINCT FROM r.{staged}"
            for name, staged in zip(column_names(target), _staged(target), strict=True)
        )
        found = session.execute(
            f"DELETE FROM {table_name(target)} WHERE rowid IN (SELECT rowid FROM"
            f" (SELECT t.rowid, row_number() OVER (PARTITION BY r.place) AS number, r.n"
            f" FROM {table_name(target)} t JOIN"
            f" (SELECT *, row_number() OVER () AS place FROM {_ROWS} WHERE n < 0) r ON {same})"
            " WHERE number <= -n)"
        ).fetchall()
        if found[0][0] != wanted:
            raise _not_there(target, wanted - found[0][0])


@contextmanager
def _registered(
    session: duckdb.DuckDBPyConnection, target: Target, rows: pa.Table
) -> Iterator[None]:
    session.register(_ROWS, logical(target, rows))
    try:
        yield
    finally:
        session.unregister(_ROWS)


def logical(target: Target, rows: pa.Table) -> pa.Table:
    """The same with types that Arrow only writes down as what they are stored as: uuid and JSON."""
    kinds = {"uuid": pa.uuid(), "json": pa.json_(), "jsonb": pa.json_()}
    for index, plain in enumerate(target.types):
        for prefix in "cb":
            name = f"{prefix}{index}"
            if plain in kinds and name in rows.column_names:
                kind = kinds[plain]
                chunks = [
                    pa.ExtensionArray.from_storage(kind, chunk) for chunk in rows[name].chunks
                ]
                place = rows.column_names.index(name)
                rows = rows.set_column(place, name, pa.chunked_array(chunks, kind))
    return rows


def _values(rows: MergedRows) -> pa.Table:
    return pa.table({f"c{index}": column for index, column in enumerate(rows.columns)})


def _staged(target: Target) -> list[str]:
    return [f"c{index}" for index in range(len(target.columns))] or ["row"]


def _picked(target: Target) -> str:
    return ", ".join(f"r.{name}" for name in _staged(target))


def _insert(target: Target) -> str:
    return f"INSERT INTO {table_name(target)} ({', '.join(column_names(target))})"


def _same(target: Target, prefix: str) -> str:
    names = column_names(target)
    return " AND ".join(f"t.{names[index]} = r.{prefix}{index}" for index in target.key)


def _not_there(target: Target, count: int) -> TableRefused:
    return TableRefused(
        f"table {target.qualified_name}: {count} rows that change are not there: somebody else "
        "wrote to the lake's table",
        remedy=f"run `penstock tables resync` for {target.qualified_name}, which copies it anew",
        table=target.oid,
    )
