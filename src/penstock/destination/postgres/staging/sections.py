"""A transaction that changes tables: its rows are staged in the layouts that they come in, and
merged with the changes between them, all in one transaction.

Rows of a table that a change has touched get a staging table of their own, made for the layout that
the table will have. All others go where ordinary batches put them, which nobody uses meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import psycopg

from penstock.destination.contract import SchemaChange
from penstock.destination.postgres.sessions.session import Connection, is_passing, said
from penstock.destination.postgres.staging.stage import FIRST_SECTION_LANE, Stage
from penstock.destination.postgres.staging.staging_plan import planned_stages
from penstock.destination.postgres.targets.alter_table import alter_target
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.destination.postgres.targets.target_table import expected_target, wanted_targets
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition

Stages = Mapping[int, Stage]


def stages_after(
    conn: Connection,
    pipeline: str,
    names: TableNames,
    stages: Stages,
    changes: Sequence[SchemaChange],
    *,
    has_history: bool,
) -> dict[int, Stage]:
    """Where rows are staged that come after ``changes``, of tables that are staged in ``stages``
    before them.
    """
    found = dict(stages)
    for number, change in enumerate(changes):
        for table in change.tables:
            if table.after is None or table.oid not in found:
                found.pop(table.oid, None)
                continue
            (wanted,) = wanted_targets(conn, [table.after], names)
            lane = FIRST_SECTION_LANE + number
            target = expected_target(table.after, wanted)
            planned = planned_stages(conn, pipeline, [target], [lane], has_history=has_history)
            (made,) = planned[lane]
            found[table.oid] = _with_own_columns(made, found[table.oid])
    return found


def _with_own_columns(made: Stage, before: Stage) -> Stage:
    """Columns and keys that only the target has are not in the source's definition."""
    names = [column.name for column in made.columns]
    keys = [[before.columns[place].name for place in key] for key in before.unique]
    return replace(
        made,
        extras=tuple(name for name in before.extras if name not in names),
        unique=tuple(
            tuple(names.index(name) for name in key) for key in keys if set(key) <= set(names)
        ),
    )


def change_tables(
    conn: Connection, pipeline: str, names: TableNames, change: SchemaChange
) -> list[str]:
    """Change the targets inside of the caller's transaction; notes on what could not be made.

    Raises TableRefused where a target cannot become what the source's table is.
    """
    notes = []
    # What waits for the commit stands in the way of ALTER TABLE.
    conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for table in change.tables:
        if table.before is None or table.after is None:
            continue
        before, after = wanted_targets(conn, [table.before, table.after], names)
        with refusals(table.after, f"at {change.position} ({change.tag})"):
            notes += alter_target(conn, pipeline, TableChange(before, after, table.is_rewrite))
    conn.execute("SET CONSTRAINTS ALL DEFERRED")
    return notes


@contextmanager
def refusals(table: TableDefinition, when: str) -> Iterator[None]:
    """What the server says to a change of a target, as TableRefused."""
    try:
        yield
    except psycopg.Error as error:
        if is_passing(error):
            raise
        name = table.qualified_name
        raise TableRefused(
            f"table {name} was changed {when}, and the destination cannot follow: {said(error)}",
            remedy=f"change its target in the same way yourself, or remove what stands in the way; "
            f"then run `penstock tables retry` for {name}",
            table=table.oid,
        ) from error
