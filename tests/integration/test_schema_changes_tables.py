"""Tables that are made, dropped, moved and partitioned, into Postgres."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.store import CopyProgress
from tests.fix_changed import Changed

MEASURES = (
    "CREATE TABLE measures (day int, v text, PRIMARY KEY (day, v)) PARTITION BY RANGE (day)",
    "CREATE TABLE early PARTITION OF measures FOR VALUES FROM (0) TO (9)",
    "CREATE TABLE late PARTITION OF measures FOR VALUES FROM (9) TO (20) PARTITION BY RANGE (day)",
    "CREATE TABLE later PARTITION OF late FOR VALUES FROM (15) TO (20)",
    "INSERT INTO measures VALUES (1, 'one'), (2, 'two'), (16, 'sixteen')",
)


def _replace_parts(changed: Changed) -> None:
    changed.transaction("INSERT INTO parts VALUES (900, 1, 'the last of the old')")
    changed.transaction(
        "DROP TABLE parts",
        "CREATE TABLE parts (code uuid PRIMARY KEY, weight int NOT NULL)",
        "INSERT INTO parts SELECT gen_random_uuid(), n FROM generate_series(1, 30) n",
    )
    changed.transaction("UPDATE parts SET weight = 0 WHERE weight > 20")


def test_a_table_is_dropped_and_made_anew_while_it_is_down(changed: Changed) -> None:
    changed.run_until_caught_up()
    _replace_parts(changed)
    changed.run_until_caught_up()
    changed.expect_equal()


def test_a_table_is_dropped_and_made_anew_while_it_runs(changed: Changed) -> None:
    with changed.running() as run:
        changed.wait(run, changed.is_same, "the tables are copied")
        _replace_parts(changed)
        changed.wait(run, changed.is_same, "the new table is copied")
        changed.transaction("ALTER TABLE parts ADD COLUMN n int", "UPDATE parts SET n = weight")
        changed.wait(run, changed.is_same, "the new table is followed")


def test_one_table_takes_the_name_of_another(changed: Changed) -> None:
    changed.run_until_caught_up()
    changed.transaction(
        "ALTER TABLE parts RENAME TO old_parts",
        "CREATE TABLE parts (id int PRIMARY KEY, other text)",
        "INSERT INTO parts VALUES (1, 'another table')",
        "INSERT INTO old_parts VALUES (901, 1, 'renamed')",
    )
    changed.run_until_caught_up()
    changed.expect_equal()
    changed.transaction(
        "ALTER TABLE parts RENAME TO passing",
        "ALTER TABLE old_parts RENAME TO parts",
        "ALTER TABLE passing RENAME TO old_parts",
        "INSERT INTO parts VALUES (902, 2, 'swapped')",
        "UPDATE old_parts SET other = 'swapped'",
    )
    changed.run_until_caught_up()
    changed.expect_equal()


def test_partitions_come_and_go(changed: Changed) -> None:
    changed.pipeline.execute(*MEASURES)
    changed.run_until_caught_up()

    def is_same() -> bool:
        return changed.is_equal("measures")

    with changed.running() as run:
        changed.wait(run, is_same, "measures is copied")
        changed.transaction(
            "CREATE TABLE latest PARTITION OF measures FOR VALUES FROM (20) TO (30)",
            "INSERT INTO measures VALUES (21, 'new partition')",
        )
        changed.wait(run, is_same, "rows of a new partition come")
        assert not any("rows rewritten" in line for line in changed.said), "nothing to copy anew"
        changed.transaction("ALTER TABLE measures DETACH PARTITION early")
        changed.wait(run, is_same, "rows of a detached partition go")
        changed.transaction("INSERT INTO early VALUES (3, 'while it was apart')")
        changed.transaction(
            "ALTER TABLE measures ATTACH PARTITION early FOR VALUES FROM (0) TO (9)"
        )
        changed.wait(run, is_same, "rows of an attached partition come")
        changed.transaction("DROP TABLE later")
        changed.wait(run, is_same, "rows of a partition's partition go with it")


def test_partitions_are_emptied(changed: Changed) -> None:
    changed.pipeline.execute(*MEASURES)

    def is_same() -> bool:
        return changed.is_equal("measures")

    def copy() -> CopyProgress:
        found = changed.copy_of("measures")
        assert found is not None
        return found

    changed.run_until_caught_up()
    assert is_same()
    first = copy().copy_id
    with changed.running() as run:
        changed.transaction("TRUNCATE measures", "INSERT INTO measures VALUES (1, 'a'), (16, 'b')")
        changed.wait(run, is_same, "all of it is emptied, and filled again")
        changed.wait(run, lambda: bool(copy().plan.files), "its new files are known")
        assert copy().copy_id == first, "the stream told all of it"
        # Of this one Postgres tells nothing.
        changed.transaction("TRUNCATE early")
        changed.wait(run, is_same, "one partition is emptied")
        assert copy().copy_id != first
    changed.transaction("INSERT INTO measures VALUES (2, 'c'), (17, 'd')", "TRUNCATE measures")
    changed.transaction("INSERT INTO measures VALUES (3, 'c'), (18, 'd')")
    changed.run_until_caught_up()
    assert is_same()
    changed.transaction("TRUNCATE early")
    changed.run_until_caught_up()
    assert is_same(), "also while nobody looked"


def test_tables_and_schemas_move(changed: Changed) -> None:
    changed.pipeline.execute(
        "CREATE SCHEMA store", "CREATE TABLE store.shelves (id int PRIMARY KEY, a text)"
    )
    changed.configure(tables={"include": ["public.*", "store.*", "shop.*"]})
    changed.run_until_caught_up()
    changed.transaction(
        "ALTER TABLE parts SET SCHEMA store",
        "INSERT INTO store.parts VALUES (903, 3, 'moved')",
        "INSERT INTO store.shelves VALUES (1, 'before')",
        "ALTER SCHEMA store RENAME TO shop",
        "INSERT INTO shop.shelves VALUES (2, 'after')",
        "UPDATE shop.parts SET note = 'moved twice' WHERE id = 903",
    )
    changed.run_until_caught_up()
    assert changed.is_equal("shop.parts", "shop.shelves")


def test_many_changes_while_it_is_down(changed: Changed) -> None:
    changed.run_until_caught_up()
    for number in range(10):
        changed.transaction(f"ALTER TABLE items ADD COLUMN c{number} int DEFAULT {number}")
        changed.transaction(f"UPDATE items SET c{number} = id WHERE id % 7 = {number % 7}")  # noqa: S608
        changed.transaction(f"ALTER TABLE items RENAME COLUMN c{number} TO d{number}")
        changed.transaction(
            f"ALTER TABLE items ALTER d{number} TYPE bigint"
            if number % 2
            else f"ALTER TABLE items DROP COLUMN d{number}"
        )
    changed.run_until_caught_up()
    changed.expect_equal()


def test_what_is_rolled_back_never_happened(changed: Changed) -> None:
    changed.run_until_caught_up()
    changed.transaction(
        "INSERT INTO parts VALUES (904, 4, 'before')",
        "SAVEPOINT one",
        "ALTER TABLE parts DROP COLUMN note",
        "INSERT INTO parts VALUES (905, 5)",
        "ROLLBACK TO SAVEPOINT one",
        "ALTER TABLE parts ADD COLUMN kept int DEFAULT 1",
        "INSERT INTO parts VALUES (906, 6, 'after', 2)",
    )
    changed.transaction("ALTER TABLE items DROP COLUMN code", "ROLLBACK")
    changed.run_until_caught_up()
    changed.expect_equal()


def test_a_session_that_opts_out_is_told_by_its_rows(changed: Changed) -> None:
    changed.run_until_caught_up()
    changed.transaction(
        "SET LOCAL penstock.track_ddl = off", "ALTER TABLE parts ADD COLUMN quiet int DEFAULT 1"
    )
    changed.transaction("INSERT INTO parts VALUES (907, 7, 'x', 5)")
    changed.run_until_caught_up()
    changed.expect_equal()


@pytest.mark.parametrize("down", [True, False])
def test_a_history_keeps_what_it_had(changed: Changed, *, down: bool) -> None:
    changed.pipeline.configure(
        destination={"type": "postgres", "url": changed.target_url, "mode": "append"}
    )
    changed.run_until_caught_up()
    statements = (
        "UPDATE parts SET note = 'old name' WHERE id = 1",
        "ALTER TABLE parts RENAME note TO remark",
        "ALTER TABLE parts ADD COLUMN weight int DEFAULT 3",
        "UPDATE parts SET remark = 'new name', weight = 4 WHERE id = 2",
        "ALTER TABLE parts DROP COLUMN item",
        "DELETE FROM parts WHERE id = 3",
    )
    if down:
        changed.transaction(*statements)
    else:
        for statement in statements:
            changed.transaction(statement)
    changed.run_until_caught_up()
    query = "(SELECT _op, id, remark, weight FROM parts WHERE _op <> 'read')"
    found = changed.rows(changed.target_url, query)
    assert found == [
        ("(delete,3,,)",),
        ('(update,1,"old name",)',),
        ('(update,2,"new name",4)',),
    ]
    assert "item" in [c.name for c in changed.tables(changed.target_url)["parts"].columns]


class Died(BaseException):
    """Nobody catches it, as nobody catches a machine that is gone."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_rows_that_were_rewritten_come_though_nobody_lived_to_ask_for_them(
    changed: Changed, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Dies on both sides of the commit of a change after which rows are to be copied anew."""
    changed.pipeline.execute(*MEASURES)
    changed.run_until_caught_up()
    changed.transaction(
        "ALTER TABLE items ADD COLUMN lot float NOT NULL DEFAULT random()",
        "ALTER TABLE measures DETACH PARTITION early",
    )
    commit = BatchCommitter.commit_sections

    def dies(committer: BatchCommitter, *sections: Any) -> None:
        if when == "after":
            commit(committer, *sections)
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr(BatchCommitter, "commit_sections", dies)
        with pytest.raises(Died):
            changed.run_until_caught_up()
    changed.run_until_caught_up()
    assert changed.is_equal("(SELECT id, label, lot FROM items)", "measures")


def test_a_change_that_the_triggers_could_not_tell_of(changed: Changed) -> None:
    """All tables are looked at; those that look different, or were rewritten, are copied anew."""
    changed.run_until_caught_up()
    log = "penstock_ddl.schema_log"
    changed.transaction(
        f"ALTER TABLE {log} RENAME TO elsewhere",
        "ALTER TABLE items ADD COLUMN lot float NOT NULL DEFAULT random()",
        "ALTER TABLE parts ADD COLUMN more text DEFAULT 'x'",
        "UPDATE parts SET more = 'y' WHERE id = 1",
        "ALTER TABLE penstock_ddl.elsewhere RENAME TO schema_log",
    )
    changed.transaction("ALTER TABLE items ADD COLUMN told int DEFAULT 1")
    changed.run_until_caught_up()
    changed.expect_equal()
    assert any("could not tell what ALTER TABLE changed" in line for line in changed.said)
