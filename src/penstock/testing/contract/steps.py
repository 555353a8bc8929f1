"""What every destination promises of changes and rows that a step gave: they are like all others.

The step and its expected result are built side by side, the result by pgoutput messages that say
what the step should make of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from penstock.config.transform_config import TransformConfig
from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Destination
from penstock.destination.protocols import TakesCopies
from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.testing.contract.chunk_rows import SNAPSHOT, ChunkRows
from penstock.testing.contract.deliveries import (
    assert_delivered,
    definition,
    deliver,
    needs_keyless,
    opened,
    reference,
)
from penstock.testing.loud_step import LoudStep
from penstock.transform.transform import Transform

STEP = LoudStep("pets", "name", "title")
ID, NOTE = Column("id", "int8", key=True), Column("note", "text")
QUIET = table("pets", ID, Column("name", "text"), NOTE)
LOUD = table("pets", ID, Column("title", "text"), NOTE)
QUIET_FULL = table("pets", Column("id", "int8"), Column("name", "text"), NOTE, identity="f")
LOUD_FULL = table("pets", Column("id", "int8"), Column("title", "text"), NOTE, identity="f")
DROPPED = table("dropped", Column("id", "int8", key=True))


def write(
    builder: ChangeBuilder, of: Table, rex: str, tom: str, fox: str, *, drops: bool
) -> ChangeSet:
    """``drops``: what the step drops is told of another table, so that positions stay."""
    with builder.transaction():
        builder.insert(of, "1", rex, "a dog")
        if drops:
            builder.insert(DROPPED, "2")
        else:
            builder.insert(of, "2", "even", None)
        builder.insert(of, "3", tom, None)
    with builder.transaction():
        builder.update(of, "1", UNSET, "an old dog", **_old(of, "1", rex, "a dog"))
        builder.update(of, "5", tom, UNSET, **_moved(of, "3", tom, None))
        builder.insert(of, "7", None, "nobody")
        builder.insert(of, "9", fox, "a fox")
        builder.delete(of, **_moved(of, "9", fox, "a fox"))
    with builder.transaction():
        builder.message("app", b"hello")
    changes = builder.cut()
    return ChangeSet(
        tuple(part for part in changes.tables if part.table.name != "dropped"),
        changes.truncates,
        changes.messages,
    )


def _old(of: Table, *row: str | None) -> dict[str, Sequence[str | None]]:
    return {"full": row} if of.identity == "f" else {}


def _moved(of: Table, *row: str | None) -> dict[str, Sequence[str | None]]:
    return {"full": row} if of.identity == "f" else {"key": (row[0], None, None)}


Change = Callable[[str, str | None], str | None]
"""What becomes of a column's text."""


def tell(builder: ChangeBuilder, of: Table, changed: Change) -> ChangeSet:
    """Rows that come, change, move to other keys and go."""

    def row(key: str, name: str | None, note: str | None) -> tuple[str | None, ...]:
        return changed("id", key), changed("name", name), note

    with builder.transaction():
        builder.insert(of, *row("1", "rex", "a dog"))
        builder.insert(of, *row("2", "tom", None))
        builder.insert(of, *row("3", None, "nobody"))
    with builder.transaction():
        key, _name, note = row("1", "rex", "an old dog")
        builder.update(of, key, UNSET, note, **_old(of, *row("1", "rex", "a dog")))
        builder.update(of, *row("7", "tom", "moved"), **_moved(of, *row("2", "tom", None)))
        builder.delete(of, **_moved(of, *row("3", None, "nobody")))
    with builder.transaction():
        builder.insert(of, *row("2", "felix", "new under an old key"))
        builder.update(of, *row("8", "tom", "x"), **_moved(of, *row("7", "tom", "moved")))
    return builder.cut()


def _rules() -> Transform:
    columns = {"id": "integer_key", "name": "hash"}
    rule = {"table": "pets", "columns": columns, "keep": ["note"]}
    key = "a key of the suite, of which nobody makes use"
    return Transform(TransformConfig.model_validate({"key": key, "rules": [rule]}))


class _Made:
    """What rules make of single values, by way of copied rows."""

    def __init__(self, rules: Transform) -> None:
        self._rules = rules

    def __call__(self, column: str, text: str | None) -> str | None:
        place = ("id", "name").index(column)
        row = ("0", text, None) if place else (text, None, None)
        parts = self._rules.copied(ChunkRows(QUIET, "0", [row])).texts()
        rows = next(part for part in parts if len(part))
        found: str | None = rows.columns[place][0].as_py()
        return found


def prepared(adapter: Adapter, of: Table) -> Destination:
    destination = opened(adapter)
    destination.prepare([STEP.definition(definition(of))])
    return destination


class StepTests:
    """What a step gave."""

    @pytest.mark.parametrize(
        ("quiet", "loud"), [(QUIET, LOUD), (QUIET_FULL, LOUD_FULL)], ids=["keyed", "full"]
    )
    def test_what_a_step_gave_is_delivered(
        self, adapter: Adapter, builder: ChangeBuilder, quiet: Table, loud: Table
    ) -> None:
        if quiet.identity == "f":
            needs_keyless(adapter)
        expected = write(ChangeBuilder(), loud, "REX", "TOM", "ÉTÉ", drops=True)
        given = STEP.apply(write(builder, quiet, "rex", "tom", "été", drops=False))
        assert reference(given) == reference(expected)
        deliver(prepared(adapter, quiet), builder.frontier, [given])
        assert_delivered(adapter, reference(expected), loud)

    @pytest.mark.parametrize("of", [QUIET, QUIET_FULL], ids=["keyed", "full"])
    def test_keys_that_rules_change_find_their_rows(
        self, adapter: Adapter, builder: ChangeBuilder, of: Table
    ) -> None:
        pytest.importorskip("cryptography")
        if of.identity == "f":
            needs_keyless(adapter)
        rules = _rules()
        expected = tell(ChangeBuilder(), of, _Made(rules))
        given = rules.apply(tell(builder, of, lambda _column, text: text))
        assert reference(given) == reference(expected)
        destination = opened(adapter)
        destination.prepare([rules.definition(definition(of))])
        deliver(destination, builder.frontier, [given])
        assert_delivered(adapter, reference(expected), of)

    def test_rows_that_a_step_gave_are_copied(self, adapter: Adapter) -> None:
        destination = prepared(adapter, QUIET)
        if not isinstance(destination, TakesCopies):
            pytest.skip(f"{destination.name} takes no copies: it is not TakesCopies")
        rows = ChunkRows(
            QUIET, "0", [("1", "rex", "a dog"), ("2", "even", None), ("3", "tom", None)]
        )
        writer = destination.chunk_writer(STEP.definition(definition(QUIET)))
        receipt = writer.write(STEP.copied(rows))
        destination.commit_chunks([receipt])
        assert receipt.rows == 2
        expected = [
            {"id": "1", "title": "REX", "note": "a dog"},
            {"id": "3", "title": "TOM", "note": None},
        ]
        if adapter.keeps == "a count":
            assert adapter.copied_count() == 2
        elif adapter.keeps == "rows":
            found = adapter.rows(("public", "pets"))
            assert sorted(dict(row)["title"] or "" for row in found) == ["REX", "TOM"]
        else:
            copied = adapter.copied()
            assert sorted((change.new for change in copied), key=str) == expected
            assert {change.position.commit_lsn for change in copied} == {SNAPSHOT.commit_lsn}
