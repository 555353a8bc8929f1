"""Rows that are not where they should be, exchange unique values or hold more at the target."""

from __future__ import annotations

import pytest

from penstock.model.errors import TableRefused
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import definition, deliver, deliver_cut
from tests.fix_target import Target

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"), Column("b", "text"))
LOOSE = table("loose", Column("a", "text"), identity="f")


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


def filled(target: Target, builder: ChangeBuilder, count: int) -> None:
    with builder.transaction():
        for number in range(count):
            builder.insert(ITEMS, str(number), f"n{number}", f"b{number}")
    deliver_cut(target.opened(definition(ITEMS)), builder)


def test_values_of_a_unique_index_that_two_rows_exchange(
    target: Target, builder: ChangeBuilder
) -> None:
    filled(target, builder, 4)
    target.execute("CREATE UNIQUE INDEX ON items (name)")
    with builder.transaction():
        builder.update(ITEMS, "0", None, UNSET)
        builder.update(ITEMS, "1", "n0", UNSET)
        builder.update(ITEMS, "0", "n1", UNSET)
        builder.update(ITEMS, "9", "n3", UNSET, key=["2", None, None])
        builder.update(ITEMS, "3", "n2", UNSET)
    deliver_cut(target.opened(definition(ITEMS)), builder)
    assert target.rows("items") == {
        ("0", "n1", "b0"): 1,
        ("1", "n0", "b1"): 1,
        ("9", "n3", "b2"): 1,
        ("3", "n2", "b3"): 1,
    }


def test_an_update_that_a_trigger_swallows(target: Target, builder: ChangeBuilder) -> None:
    """docs/destinations/postgres.md says so: the row is what it is at the source."""
    filled(target, builder, 2)
    target.execute(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER swallow BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION swallow();"
        "ALTER TABLE items ENABLE ALWAYS TRIGGER swallow"
    )
    with builder.transaction():
        builder.update(ITEMS, "1", "changed", UNSET)
    deliver_cut(target.opened(definition(ITEMS)), builder)
    assert target.rows("items") == {("0", "n0", "b0"): 1, ("1", "changed", "b1"): 1}


class TestColumnsThatOnlyTheTargetHas:
    @pytest.fixture(autouse=True)
    def _extras(self, target: Target, builder: ChangeBuilder) -> None:
        filled(target, builder, 3)
        target.execute("ALTER TABLE items ADD seen bool NOT NULL DEFAULT false, ADD note text")
        target.execute('ALTER TABLE items ADD "No 1%" int GENERATED ALWAYS AS IDENTITY')
        target.execute("UPDATE items SET seen = true, note = 'mine ' || id")

    def extras(self, target: Target) -> dict[str, tuple[object, ...]]:
        return {row[0]: row[1:] for row in target.all("SELECT name, id, note, seen FROM items")}

    def test_stay_through_updates_and_key_changes(
        self, target: Target, builder: ChangeBuilder
    ) -> None:
        numbers = target.all('SELECT "No 1%" FROM items ORDER BY id')
        with builder.transaction():
            builder.update(ITEMS, "0", "updated", UNSET)
            builder.update(ITEMS, "7", "moved", UNSET, key=["1", None, None])
            builder.insert(ITEMS, "1", "new", "")
            builder.delete(ITEMS, key=["2", None, None])
            builder.insert(ITEMS, "2", "again", "")
        deliver_cut(target.opened(definition(ITEMS)), builder)
        assert self.extras(target) == {
            "updated": (0, "mine 0", True),
            "moved": (7, "mine 1", True),
            "new": (1, None, False),
            "again": (2, None, False),
        }
        kept = "SELECT \"No 1%\" FROM items WHERE name IN ('updated', 'moved') ORDER BY id"
        assert target.all(kept) == numbers[:2]

    def test_stay_when_rows_are_made_anew(self, target: Target, builder: ChangeBuilder) -> None:
        target.execute("CREATE UNIQUE INDEX ON items (name)")
        with builder.transaction():
            builder.update(ITEMS, "0", None, UNSET)
            builder.update(ITEMS, "1", "n0", UNSET)
            builder.update(ITEMS, "0", "n1", UNSET)
        deliver_cut(target.opened(definition(ITEMS)), builder)
        assert self.extras(target) == {
            "n1": (0, "mine 0", True),
            "n0": (1, "mine 1", True),
            "n2": (2, "mine 2", True),
        }

    def test_stay_where_an_insert_meets_a_row(self, target: Target, builder: ChangeBuilder) -> None:
        with builder.transaction():
            builder.insert(ITEMS, "0", "over", "")
        deliver_cut(target.opened(definition(ITEMS)), builder)
        assert self.extras(target)["over"] == (0, "mine 0", True)


class TestOnConflictUpdate:
    def test_an_insert_over_a_row(self, target: Target, builder: ChangeBuilder) -> None:
        filled(target, builder, 2)
        with builder.transaction():
            builder.insert(ITEMS, "1", "over", None)
            builder.update(ITEMS, "0", "n", UNSET)
        deliver_cut(target.opened(definition(ITEMS)), builder)
        assert target.rows("items") == {("1", "over", None): 1, ("0", "n", "b0"): 1}

    def test_a_key_change_over_a_row(self, target: Target, builder: ChangeBuilder) -> None:
        filled(target, builder, 2)
        with builder.transaction():
            builder.update(ITEMS, "1", "moved", UNSET, key=["0", None, None])
        deliver_cut(target.opened(definition(ITEMS)), builder)
        assert target.rows("items") == {("1", "moved", "b0"): 1}

    def test_whole_updates_of_rows_that_are_missing(
        self, target: Target, builder: ChangeBuilder
    ) -> None:
        with builder.transaction():
            builder.update(ITEMS, "1", "a", "b")
            builder.update(ITEMS, "3", "a", "b", key=["2", None, None])
            builder.delete(ITEMS, key=["4", None, None])
            builder.update(LOOSE, "new", full=["gone"])
            builder.delete(LOOSE, full=["never"])
        destination = target.opened(definition(ITEMS), definition(LOOSE))
        deliver_cut(destination, builder)
        assert target.rows("items") == {("1", "a", "b"): 1, ("3", "a", "b"): 1}
        assert target.rows("loose") == {("new",): 1}

    @pytest.mark.parametrize("old", [None, ["1", None, None]], ids=["update", "key change"])
    def test_a_part_of_a_row_that_is_missing(
        self, target: Target, builder: ChangeBuilder, old: list[str | None] | None
    ) -> None:
        with builder.transaction():
            builder.insert(ITEMS, "1", "other", "")
            builder.delete(ITEMS, key=["1", None, None])
            builder.update(ITEMS, "5", "a", UNSET, key=old)
        destination = target.opened(definition(ITEMS))
        with pytest.raises(TableRefused, match=r"public\.items.* id = 5, .*no such row") as refused:
            deliver_cut(destination, builder)
        assert refused.value.table == ITEMS.oid
        assert "only a part of it" in refused.value.message
        assert target.rows("items") == {}
        assert destination.committed() is None


class TestOnConflictError:
    @pytest.mark.parametrize(
        ("what", "key"),
        [("insert", "1"), ("update", "8"), ("rekey", "9"), ("onto", "0"), ("delete", "7")],
    )
    def test_a_row_that_is_not_as_it_should_be(
        self, target: Target, builder: ChangeBuilder, what: str, key: str
    ) -> None:
        filled(target, builder, 2)
        reached = builder.frontier
        with builder.transaction():
            builder.update(ITEMS, "0" if what != "onto" else "1", "changed", "too")
            if what == "insert":
                builder.insert(ITEMS, "1", "over", None)
            elif what == "update":
                builder.update(ITEMS, "8", "a", "b")
            elif what == "rekey":
                builder.update(ITEMS, "9", "a", "b", key=["8", None, None])
            elif what == "onto":
                builder.update(ITEMS, "0", "a", "b", key=["1", None, None])
            else:
                builder.delete(ITEMS, key=["7", None, None])
        destination = target.opened(definition(ITEMS), on_conflict="error")
        with pytest.raises(TableRefused, match=rf"public\.items: .* id = {key}, changed at 1/"):
            deliver_cut(destination, builder)
        assert target.rows("items") == {("0", "n0", "b0"): 1, ("1", "n1", "b1"): 1}
        assert destination.committed() == Watermarks(reached)

    def test_a_row_without_a_key_that_is_missing(
        self, target: Target, builder: ChangeBuilder
    ) -> None:
        with builder.transaction():
            builder.insert(LOOSE, "a")
        run = builder.cut()
        with builder.transaction():
            builder.delete(LOOSE, full=["a"])
            builder.delete(LOOSE, full=["b"])
        destination = target.opened(definition(LOOSE), on_conflict="error")
        with pytest.raises(TableRefused, match=r"public\.loose: .* 1 of 1 rows .* are not in the"):
            deliver(destination, builder.frontier, [run], [builder.cut()])
        assert target.rows("loose") == {}
