"""Merges net rows into a Delta table, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.destination.delta.delta_rs import delta_rs
from penstock.destination.delta.places import DeltaPlace
from penstock.destination.delta.tables import arrow_schema
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.task_writer import PARK
from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.transform.net_rows import DELETE, INSERT

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

Key = tuple[str, ...]
Park = Callable[[Sequence[Key]], None]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def merge_rows(
    table: DeltaTable,
    place: DeltaPlace,
    rows: MergedRows,
    properties: CommitProperties,
    park: Park,
) -> Sequence[Key]:
    """One commit, also where nothing is left to do: it carries the mark. The keys that were parked,
    which ``park`` is given before it.

    Raises TableRefused where the table has no key and rows leave it, or where rows that change are
    not there: somebody else wrote to the table.
    """
    if rows.kind == "counted":
        _append(table, _repeated(rows), rows.emptied, properties)
        return ()
    if rows.emptied or (rows.kind == "keyed" and rows.is_all_inserts):
        parked = (rows.op == PARK) | (rows.is_partial & (rows.op != DELETE))
        comes = pa.array((rows.op != DELETE) & ~parked)
        kept = pa.table(
            [column.filter(comes) for column in rows.columns], names=list(rows.target.columns)
        )
        keys = rows.parked(parked)
        park(keys)
        _append(table, kept, rows.emptied, properties)
        return keys
    return _merge(table, place, rows, properties, park)


def _append(table: DeltaTable, rows: pa.Table, over: bool, properties: CommitProperties) -> None:
    mode = "overwrite" if over else "append"
    delta_rs().write_deltalake(table, rows, mode=mode, commit_properties=properties)


def _repeated(rows: MergedRows) -> pa.Table:
    target = rows.target
    if (rows.count < 0).any():
        raise TableRefused(
            f"table {target.qualified_name} has no key, and rows of it were changed or deleted: "
            "delta-rs cannot remove so many of some equal rows",
            remedy="give it a primary key, or a unique index as its replica identity; then run "
            f"`penstock tables resync` for {target.qualified_name}",
            table=target.oid,
        )
    columns = rows.columns
    if not rows.is_plain:
        places = pa.array(np.repeat(np.arange(len(rows.count)), rows.count))
        columns = tuple(column.take(places) for column in columns)
    return pa.table(list(columns), names=list(target.columns))


def _merge(
    table: DeltaTable,
    place: DeltaPlace,
    rows: MergedRows,
    properties: CommitProperties,
    park: Park,
) -> list[Key]:
    target, op = rows.target, rows.op
    names = [quoted(name) for name in target.columns]
    parked = op == PARK
    is_partial = rows.is_partial & ~parked & (op != DELETE)
    is_replayed = rows.kind == "replayed"
    if is_replayed and is_partial.any():
        parked |= is_partial & ~_is_there(table, place, rows, is_partial)
    keys = rows.parked(parked)
    park(keys)
    # What is inserted finds nothing, also where another row leaves its key at the same time.
    finds = pa.array(op != INSERT)
    columns = {f"c{index}": column for index, column in enumerate(rows.columns)}
    for index, column in zip(target.key, rows.before, strict=True):
        columns[f"b{index}"] = pc.if_else(finds, column, pa.scalar(None, column.type))
    updates = {}
    for index, name in enumerate(names):
        mask = rows.unset[index]
        if mask is None:
            updates[name] = f"s.c{index}"
        else:
            columns[f"u{index}"] = pa.array(mask)
            updates[name] = f"CASE WHEN s.u{index} THEN t.{name} ELSE s.c{index} END"
    columns["goes"] = pa.array(op == DELETE)
    columns["comes"] = pa.array((op != DELETE) if is_replayed else (op == INSERT))
    source = pa.table(columns).filter(pa.array(~parked))
    same = " AND ".join(f"t.{names[index]} = s.b{index}" for index in target.key)
    found = (
        table.merge(source, same, source_alias="s", target_alias="t", commit_properties=properties)
        .when_matched_delete(predicate="s.goes")
        .when_matched_update(updates=updates, predicate="NOT s.goes")
        .when_not_matched_insert(
            updates={name: f"s.c{index}" for index, name in enumerate(names)},
            predicate="s.comes",
        )
        .execute()
    )
    touched = found["num_target_rows_updated"] + found["num_target_rows_deleted"]
    lacking = int((op != INSERT).sum()) - int(touched)
    if not is_replayed and lacking:
        raise not_there(target, lacking)
    return keys


def _is_there(
    table: DeltaTable, place: DeltaPlace, rows: MergedRows, wanted: np.ndarray
) -> np.ndarray:
    """Which of these rows the table has, by their keys."""
    target = rows.target
    places = np.flatnonzero(wanted)
    keys = [column.take(pa.array(places)) for column in rows.before]
    names = [target.columns[index] for index in target.key]
    is_there = np.zeros(len(rows), bool)
    mine = pa.table([*keys, pa.array(places)], names=[*names, "penstock_place"])
    for part in place.datasets(table, arrow_schema(target)):
        there = part.to_table(columns=names, filter=ds.field(names[0]).isin(keys[0]))
        found = mine.join(there, names, join_type="left semi")["penstock_place"].to_numpy()
        is_there[found] = True
    return is_there


def put_rows(
    table: DeltaTable, target: Target, rows: pa.Table, properties: CommitProperties
) -> None:
    """Put rows in place of those with the same key; without a key, add them."""
    rows = rows.rename_columns(list(target.columns))
    if not target.key:
        _append(table, rows, False, properties)
        return
    names = [quoted(name) for name in target.columns]
    same = " AND ".join(f"t.{names[index]} = s.{names[index]}" for index in target.key)
    values = {name: f"s.{name}" for name in names}
    table.merge(
        rows, same, source_alias="s", target_alias="t", commit_properties=properties
    ).when_matched_update(updates=values).when_not_matched_insert(updates=values).execute()


def not_there(target: Target, count: int) -> TableRefused:
    return TableRefused(
        f"table {target.qualified_name}: {count} rows that change are not there: somebody else "
        "wrote to the Delta table",
        remedy=f"run `penstock tables resync` for {target.qualified_name}, which copies it anew",
        table=target.oid,
    )
