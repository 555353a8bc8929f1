"""Rows that tasks hand over: straight into their targets, or staged after all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.staging.receipt import Part, StagedBatch
from penstock.model.errors import BatchAgain, Fenced, TableRefused
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import definition, deliver, deliver_cut
from tests.fix_target import Target

ITEMS = table("items", Column("id", "int8", key=True), Column("v", "text"))
LOOSE = table("loose", Column("a", "text"), identity="f")


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


def opened(target: Target, *, dead_letter: bool = False) -> PostgresDestination:
    return target.opened(definition(ITEMS), definition(LOOSE), dead_letter=dead_letter)


def write(builder: ChangeBuilder, *numbers: int, v: str | None = "a") -> None:
    with builder.transaction():
        for number in numbers:
            builder.insert(ITEMS, str(number), v)
            builder.insert(LOOSE, f"loose {number}")


def parts(receipt: bytes) -> list[Part]:
    return [part for run in StagedBatch.from_bytes([receipt]).runs for part in run.parts]


def ids(target: Target) -> list[str]:
    return [row[0] for row in target.all("SELECT id::text FROM items ORDER BY id")]


def staged(target: Target) -> int:
    names = target.all(
        "SELECT format('penstock.%I', relname) FROM pg_class WHERE relname ~ '^stage_shop'"
    )
    return sum(target.rows(name, "part").total() for (name,) in names)


def test_rows_that_are_only_added_are_never_staged(target: Target, builder: ChangeBuilder) -> None:
    destination = opened(target)
    write(builder, 1, 2, v="tab\t, line\n, \\back\\N and ü")
    write(builder, 3, v=None)
    receipt = destination.writer().write([builder.cut()])
    assert all(part.handed for part in parts(receipt))
    assert ids(target) == []
    destination.commit([receipt], Watermarks(builder.frontier))
    assert target.rows("items") == {
        ("1", "tab\t, line\n, \\back\\N and ü"): 1,
        ("2", "tab\t, line\n, \\back\\N and ü"): 1,
        ("3", None): 1,
    }
    assert target.rows("loose").total() == 3
    assert staged(target) == 0


def test_parts_are_taken_in_their_order_whichever_way_they_came(
    target: Target, builder: ChangeBuilder
) -> None:
    """Added, changed and removed, added again: over three runs and two tasks."""
    destination = opened(target)
    write(builder, 1, 2, 3)
    first = builder.cut()
    with builder.transaction():
        builder.update(ITEMS, "1", "changed")
        builder.delete(ITEMS, key=["2", None])
        builder.delete(LOOSE, full=["loose 2"])
    second = builder.cut()
    write(builder, 2, 4, v="again")
    deliver(destination, builder.frontier, [first], [second, builder.cut()])
    assert target.rows("items") == {
        ("1", "changed"): 1,
        ("2", "again"): 1,
        ("3", "a"): 1,
        ("4", "again"): 1,
    }
    assert target.rows("loose") == {(f"loose {number}",): 1 for number in (1, 2, 3, 4)}


def test_a_truncate_takes_what_was_handed_over_before_it(
    target: Target, builder: ChangeBuilder
) -> None:
    destination = opened(target)
    write(builder, 1)
    first = builder.cut()
    with builder.transaction():
        builder.truncate(ITEMS)
    write(builder, 2)
    deliver(destination, builder.frontier, [first, builder.cut()])
    assert ids(target) == ["2"]
    assert target.rows("loose").total() == 2


def test_a_row_that_is_there_already_is_replaced_as_ever(
    target: Target, builder: ChangeBuilder
) -> None:
    destination = opened(target)
    target.execute("INSERT INTO items VALUES (2, 'in the way')")
    # More than is read at a time.
    values = {number: f"{number} " * 400_000 for number in (1, 2, 3)}
    for number, v in values.items():
        write(builder, number, v=v)
    deliver_cut(destination, builder)
    assert target.rows("items") == {(str(number), v): 1 for number, v in values.items()}
    assert target.rows("loose").total() == 3
    # The next ones are staged at once.
    write(builder, 4)
    receipt = destination.writer().write([builder.cut()])
    assert not any(part.handed for part in parts(receipt))
    destination.commit([receipt], Watermarks(builder.frontier))
    assert ids(target) == ["1", "2", "3", "4"]


def test_a_refused_row_is_named_and_nothing_of_the_batch_is_there(
    target: Target, builder: ChangeBuilder
) -> None:
    destination = opened(target)
    target.execute("ALTER TABLE items ADD CHECK (v <> 'bad')")
    write(builder, 1)
    with builder.transaction():
        builder.insert(ITEMS, "7", "bad")
    with pytest.raises(TableRefused, match=r"public\.items.*id = 7") as refused:
        deliver_cut(destination, builder)
    assert refused.value.table == ITEMS.oid
    assert target.rows("loose").total() == len(ids(target)) == 0
    assert destination.committed() is None


def test_a_value_that_the_type_refuses_becomes_a_letter(
    target: Target, builder: ChangeBuilder
) -> None:
    """Staging refuses it, too."""
    destination = opened(target, dead_letter=True)
    write(builder, 1, 2)
    with builder.transaction():
        builder.insert(ITEMS, "seven", "a\ttab")
    deliver_cut(destination, builder)
    assert ids(target) == ["1", "2"]
    assert destination.dead_letters() == {"public.items": 1}
    ((values,),) = target.all("SELECT row_values::text::jsonb FROM penstock.dead_letter")
    assert values == {"id": "seven", "v": "a\ttab"}


def test_rows_that_are_gone_before_the_commit_are_asked_for_again(
    target: Target, builder: ChangeBuilder
) -> None:
    destination = opened(target)
    write(builder, 1)
    run = builder.cut()
    receipt = destination.writer().write([run])
    for part in parts(receipt):
        assert part.handed is not None
        Path(part.handed.file).unlink(missing_ok=True)
    with pytest.raises(BatchAgain, match="gone"):
        destination.commit([receipt], Watermarks(builder.frontier))
    assert (ids(target), destination.committed()) == ([], None)
    deliver(destination, builder.frontier, [run])
    assert ids(target) == ["1"]


@pytest.mark.parametrize("then", ["straight in", "staged after all", "refused"])
def test_nothing_of_a_batch_lies_about_once_it_is_over(
    target: Target, builder: ChangeBuilder, then: str
) -> None:
    destination = opened(target)
    if then == "staged after all":
        target.execute("INSERT INTO items VALUES (1, 'in the way')")
    if then == "refused":
        target.execute("ALTER TABLE items ADD CHECK (v <> 'a')")
    write(builder, 1)
    receipt = destination.writer().write([builder.cut()])
    files = {Path(part.handed.file) for part in parts(receipt) if part.handed}
    assert files
    assert all(file.exists() for file in files)
    with suppress(TableRefused):
        destination.commit([receipt], Watermarks(builder.frontier))
    assert (destination.committed() is None) is (then == "refused")
    assert not any(file.exists() for file in files)


def test_a_batch_of_nothing_takes_no_other_s_rows(target: Target, builder: ChangeBuilder) -> None:
    """It is committed while tasks work on the next one."""
    destination, start = opened(target), builder.frontier
    for number in (1, 2):
        write(builder, number)
    run = builder.cut()
    for _lane in range(2):
        receipt = destination.writer().write([run])
        destination.commit([], Watermarks(start))
        assert all(Path(part.handed.file).exists() for part in parts(receipt) if part.handed)
    destination.commit([receipt], Watermarks(builder.frontier))
    assert ids(target) == ["1", "2"]


def test_rows_that_are_cut_short_are_asked_for_again(
    target: Target, builder: ChangeBuilder
) -> None:
    destination = opened(target)
    write(builder, 1, 2)
    run = builder.cut()
    receipt = destination.writer().write([run])
    file = max(part.handed.file for part in parts(receipt) if part.handed)
    os.truncate(file, Path(file).stat().st_size - 1)
    with pytest.raises(BatchAgain, match="gone"):
        destination.commit([receipt], Watermarks(builder.frontier))
    assert (ids(target), target.rows("loose").total()) == ([], 0)
    deliver(destination, builder.frontier, [run])
    assert ids(target) == ["1", "2"]


def test_a_fenced_driver_adds_nothing(target: Target, builder: ChangeBuilder) -> None:
    first = opened(target)
    write(builder, 1)
    run = builder.cut()
    receipt = first.writer().write([run])
    second = opened(target)
    with pytest.raises(Fenced):
        first.commit([receipt], Watermarks(builder.frontier))
    assert ids(target) == []
    deliver(second, builder.frontier, [run])
    assert ids(target) == ["1"]


def test_readers_see_all_tables_of_a_batch_or_none(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = opened(target)
    write(builder, 1)
    seen: list[tuple[int, int]] = []

    def look(name: str) -> None:
        if name == "postgres.merged":
            seen.append((len(ids(target)), target.rows("loose").total()))

    monkeypatch.setattr("penstock.destination.postgres.commits.failpoint", look)
    deliver_cut(destination, builder)
    assert seen == [(0, 0)]
    assert (len(ids(target)), target.rows("loose").total()) == (1, 1)


def test_a_rule_of_the_target_is_heeded(target: Target, builder: ChangeBuilder) -> None:
    """COPY would pass it by."""
    opened(target)
    target.execute("CREATE TABLE seen (id bigint)")
    target.execute(
        "CREATE RULE also AS ON INSERT TO items DO ALSO INSERT INTO seen VALUES (NEW.id)"
    )
    target.execute("ALTER TABLE items ENABLE ALWAYS RULE also")
    write(builder, 1)
    deliver_cut(opened(target), builder)
    assert target.rows("seen") == {("1",): 1}


def test_a_full_disk_at_the_task_means_that_rows_are_staged(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("penstock.destination.postgres.staging.handover.HandedFile._write", full)
    destination = opened(target)
    write(builder, 1)
    receipt = destination.writer().write([builder.cut()])
    assert not any(part.handed for part in parts(receipt))
    destination.commit([receipt], Watermarks(builder.frontier))
    assert ids(target) == ["1"]


def test_the_session_serves_on_after_a_copy_that_failed(
    target: Target, builder: ChangeBuilder
) -> None:
    """Whatever it was told of the batch, the next one finds it as before."""
    destination = opened(target)
    target.execute("CREATE UNIQUE INDEX ON items (v)")
    write(builder, 1, 2, v="same")
    with pytest.raises(TableRefused):
        deliver_cut(destination, builder)
    target.execute("DROP INDEX items_v_idx")
    write(builder, 3)
    deliver_cut(destination, builder)
    with psycopg.connect(target.url) as conn:
        rows = conn.execute("SELECT id FROM items ORDER BY id").fetchall()
    assert rows == [(3,)]
