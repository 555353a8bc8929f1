"""A target that is to be copied becomes what its table is, from whatever it was left at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.destination.postgres.targets.fit_table import fit_target
from penstock.destination.postgres.targets.target_table import ensure_targets
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import definitions_of
from tests.integration.altered_table import CASES, SETUP
from tests.integration.test_alter_target import (
    NAMES,
    Connection,
    connections,
    databases,
    prepare,
    seen,
    table_of,
)

__all__ = ["connections", "databases"]


def _bare(table: TableDefinition) -> TableDefinition:
    """Keys, indexes and constraints go before the copy and come after it."""
    return replace(seen(table), indexes=(), constraints=(), primary_key=(), unique_keys=())


# A sequence keeps the name that it has here. A range that was renamed cannot be told from another
# one, and its multirange's name is taken: such a table is refused.
_OTHERWISE = {"rename sequence", "rename range"}


@pytest.mark.parametrize("case", sorted(CASES.keys() - _OTHERWISE))
def test_it_becomes_what_would_be_made(case: str, connections: list[Connection]) -> None:
    source, target, fresh = connections
    if case == "set expression" and source.info.server_version < 170000:
        pytest.skip("SET EXPRESSION came with Postgres 17")
    source.execute(SETUP)
    former = [table_of(source)]
    prepare(target, former[0])
    statements = CASES[case]
    for statement in (statements,) if isinstance(statements, str) else statements:
        source.execute(statement.encode())
        former.append(table_of(source))
    # Nobody knows which of all these the target was brought to.
    fit_target(target, "p", NAMES, former[-1], former)
    ensure_targets(fresh, [former[-1]], NAMES)
    # Made here where there was no other way.
    ensure_targets(target, [former[-1]], NAMES, {former[-1].oid: _oid(target)})
    assert _bare(table_of(target)) == _bare(table_of(fresh))


def _oid(conn: Connection) -> int:
    row = conn.execute("SELECT target::bigint FROM penstock.target_table").fetchone()
    return row[0] if row else 0


def test_what_a_person_made_stays(connections: list[Connection]) -> None:
    source, target, _ = connections
    source.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text, old int)")
    before = table_of(source)
    prepare(target, before)
    target.execute("ALTER TABLE t ADD mine text, ALTER b TYPE varchar(50), ALTER a SET DEFAULT 4")
    source.execute("ALTER TABLE t DROP old, ADD new int")
    after = table_of(source)
    fit_target(target, "p", NAMES, after, [before])
    found = {column.name: column for column in table_of(target).columns}
    assert set(found) == {"id", "a", "b", "mine", "new"}
    assert found["b"].type.modifier == "(50)"
    assert found["a"].default == "4"


def test_a_sequence_goes_where_its_column_has_gone(connections: list[Connection]) -> None:
    """Names decide which column is which, and two have exchanged theirs."""
    source, target, fresh = connections
    source.execute("CREATE TABLE t (id int PRIMARY KEY, a bigint, b bigserial)")
    former = [table_of(source)]
    prepare(target, former[0])
    source.execute(
        "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b"
    )
    former.append(table_of(source))
    fit_target(target, "p", NAMES, former[-1], former)
    ensure_targets(fresh, [former[-1]], NAMES)
    assert _bare(table_of(target)) == _bare(table_of(fresh))


def test_types_come_also_where_the_table_is_not_there_yet(connections: list[Connection]) -> None:
    source, target, _ = connections
    source.execute("CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (id int PRIMARY KEY, m mood)")
    prepare(target, table_of(source))
    source.execute("ALTER TYPE mood ADD VALUE 'calm'; ALTER TABLE t RENAME TO u")
    other = replace(table_of(source), oid=1)
    fit_target(target, "p", NAMES, other, [])
    ensure_targets(target, [other], NAMES)
    (made,) = definitions_of(target, [TableName("public", "u")])
    assert [kind.labels for kind in made.types] == [("sad", "calm")]
