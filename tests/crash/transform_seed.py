"""One seed of chaos in which rules change all keys of ten tables that refer to each other."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_postgres import IntoPostgres
from tests.crash.schema_seed import IntoChanged, run_changing_seed
from tests.crash.side_session import Connection, SideSession
from tests.integration.transformed_rows import expected_rows, rows_at
from tests.tree_of_tables import KEY, PLANTED, RULES, TREE, Changes, schema

_FOREIGN_KEYS = """
SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND convalidated
   AND conrelid::regclass::text ~ '^t[0-9]$'
"""
# In the place of a name, so that the one of a constraint that was never made is seen as well.
_ORPHANS = "SELECT count(*) FROM t{child} c LEFT JOIN t{parent} p ON p.id = c.parent\
 WHERE c.parent IS NOT NULL AND p.id IS NULL"


class TreeChanges(SideSession):
    """Some changes in each transaction, one in ten of which is rolled back."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, pause=0.1)
        self._chance = random.Random(f"tree of {seed}")
        self._changes = Changes(seed)
        with psycopg.connect(url, autocommit=True) as conn:
            for statement in (*schema(), *self._changes.statements(200)):
                conn.execute(statement.encode())

    def transaction(self, conn: Connection) -> None:
        for statement in self._changes.statements(self._chance.randint(1, 5)):
            conn.execute(statement.encode())
        if self._chance.random() < 0.1:
            conn.rollback()
        else:
            conn.commit()
            self.changes += 1


class IntoTransformed(IntoChanged):
    """The load's own tables as they are, and the tree under its rules."""

    def make_changing(self, seed: int) -> SideSession:
        self.pipeline.also(transform={"key": KEY, "rules": RULES})
        return TreeChanges(self.url, seed)

    def check_all(self) -> int:
        expected = {n: r for n, r in expected_rows(self.pipeline).items() if n[0] == "t"}
        assert len(expected) == len(TREE)
        assert rows_at(self.target_url, expected) == expected
        with psycopg.connect(self.target_url) as conn:
            assert conn.execute(_FOREIGN_KEYS).fetchone() == (len(TREE) - 1,)
            for child in TREE[1:]:
                orphans = _ORPHANS.format(child=child, parent=child - 1)
                assert conn.execute(orphans.encode()).fetchone() == (0,)
        assert PLANTED not in "".join(run.output for run in self._runs)
        return IntoPostgres.check_all(self) + sum(map(len, expected.values()))


def run_transform_seed(
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say = print,
) -> None:
    """Bring ``count`` faults over a pipeline whose rules change keys.

    Fails unless the destination's rows are the rules applied to the source's, and all of them
    refer to what is there.
    """
    run_changing_seed(IntoTransformed, report, count, servers, folder, say)
