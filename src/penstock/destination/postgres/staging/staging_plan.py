"""Which staging tables targets need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.destination.postgres.merging import history
from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.staging.stage import Kind, Stage, StagedColumn, staging_name
from penstock.destination.postgres.targets.target_table import TargetTable


def planned_stages(
    conn: Connection,
    pipeline: str,
    targets: Sequence[TargetTable],
    lanes: Sequence[int],
    *,
    has_history: bool,
) -> dict[int, list[Stage]]:
    """For each lane the staging tables of these targets, in their order."""
    extras, plain = _extras(conn, targets), _plain(conn, targets)
    return {
        lane: [
            replace(
                _stage(pipeline, target, own, lane, has_history=has_history),
                takes_lines=not has_history and (target.schema, target.name) in plain,
            )
            for target, own in zip(targets, extras, strict=True)
        ]
        for lane in lanes
    }


def _stage(
    pipeline: str, target: TargetTable, extras: tuple[str, ...], lane: int, *, has_history: bool
) -> Stage:
    columns = [column for column in target.columns if not column.is_generated]
    kind: Kind = "keyed" if target.merge_key else "counted"
    if has_history:
        columns = [column for column in columns if not history.is_own(column.name)]
        kind = "history"
    names = [column.name for column in columns]
    return Stage(
        oid=target.source_oid,
        source=target.source_qualified_name,
        target=(target.schema, target.name),
        staging=staging_name(pipeline, target.source_oid, lane),
        kind=kind,
        columns=tuple(StagedColumn(c.name, c.type, c.is_user_defined) for c in columns),
        key=tuple(names.index(name) for name in target.merge_key) if kind == "keyed" else (),
        extras=extras if kind == "keyed" else (),
        unique=tuple(
            tuple(names.index(name) for name in key)
            for key in target.unique
            if kind == "keyed" and set(names).issuperset(key)
        ),
        left_out=frozenset(target.left_out),
        announced=target.announced,
    )


def _extras(conn: Connection, targets: Sequence[TargetTable]) -> list[tuple[str, ...]]:
    """For each target the columns that only it has."""
    rows = conn.execute(
        "SELECT n.nspname, c.relname, array_agg(a.attname::text ORDER BY a.attnum)"
        " FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)"
        " JOIN pg_namespace n ON n.nspname = wanted.schema"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " AND a.attgenerated = '' GROUP BY 1, 2",
        [[target.schema for target in targets], [target.name for target in targets]],
    )
    columns = {(schema, name): names for schema, name, names in rows}
    return [
        tuple(
            name
            for name in columns.get((target.schema, target.name), ())
            if name not in {column.name for column in target.columns}
        )
        for target in targets
    ]


def _plain(conn: Connection, targets: Sequence[TargetTable]) -> set[tuple[str, str]]:
    """The targets that are tables without rules, which COPY would pass by."""
    rows = conn.execute(
        "SELECT n.nspname::text, c.relname::text"
        " FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)"
        " JOIN pg_namespace n ON n.nspname = wanted.schema"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name"
        " WHERE c.relkind IN ('r', 'p') AND NOT c.relhasrules",
        [[target.schema for target in targets], [target.name for target in targets]],
    )
    return {(schema, name) for schema, name in rows}
