"""What every destination promises of single changes, whatever they hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.model.errors import TableRefused
from penstock.model.lsn import Frontier
from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import (
    BARE,
    ITEMS,
    LOOSE,
    NOTES,
    assert_delivered,
    deliver,
    needs_keyless,
    opened,
    reference,
    rows_of,
)


class ChangeTests:
    """Single changes."""

    def test_unset_is_not_null(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        with builder.transaction():
            builder.insert(NOTES, "1", "long")
            builder.update(NOTES, "1", UNSET)
            builder.update(NOTES, "1", None)
            builder.update(NOTES, "2", UNSET, key=["1", None])
        changes = builder.cut()
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        if adapter.keeps == "changes":
            assert rows_of(adapter) == [
                ("insert", {"id": "1", "body": "long"}, None),
                ("update", {"id": "1"}, None),
                ("update", {"id": "1", "body": None}, None),
                ("update", {"id": "2"}, {"id": "1"}),
            ]

    def test_an_unset_column_comes_from_a_full_old_row(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        needs_keyless(adapter)
        with builder.transaction():
            builder.insert(LOOSE, "w", "long")
            builder.insert(LOOSE, "v", None)
            builder.update(LOOSE, "x", UNSET, full=["w", "long"])
            builder.update(LOOSE, "y", UNSET, full=["v", None])
            builder.delete(LOOSE, full=["y", None])
        changes = builder.cut()
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        if adapter.keeps == "changes":
            assert rows_of(adapter)[2:] == [
                ("update", {"a": "x", "b": "long"}, {"a": "w", "b": "long"}),
                ("update", {"a": "y", "b": None}, {"a": "v", "b": None}),
                ("delete", None, {"a": "y", "b": None}),
            ]

    def test_key_changes_and_deletes_carry_the_old_identity(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        with builder.transaction():
            builder.insert(ITEMS, "1", "a")
            builder.update(ITEMS, "2", "a", key=["1", None])
            builder.delete(ITEMS, key=["2", None])
        changes = builder.cut()
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        if adapter.keeps == "changes":
            assert rows_of(adapter) == [
                ("insert", {"id": "1", "name": "a"}, None),
                ("update", {"id": "2", "name": "a"}, {"id": "1"}),
                ("delete", None, {"id": "2"}),
            ]

    def test_truncate_of_several_tables_stands_between_their_rows(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        with builder.transaction():
            builder.insert(ITEMS, "1", "gone")
            builder.truncate(ITEMS, NOTES, LOOSE, restart=True, cascade=True)
            builder.insert(ITEMS, "2", "stays")
        changes = builder.cut()
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        if adapter.keeps == "changes":
            assert [(c.op, len(c.tables)) for c in adapter.delivered()] == [
                ("insert", 1),
                ("truncate", 3 if adapter.takes_keyless else 2),
                ("insert", 1),
            ]

    def test_a_truncate_makes_what_other_tasks_wrote_before_it_void(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        runs = []
        for number in range(4):
            with builder.transaction():
                builder.insert(ITEMS, str(number), "a")
                builder.insert(LOOSE, "a", None)
            runs.append(builder.cut())
            with builder.transaction():
                builder.update(ITEMS, str(number), "b")
                if number == 2:
                    builder.truncate(ITEMS, LOOSE)
            runs.append(builder.cut())
        destination = opened(adapter)
        deliver(destination, builder.frontier, runs[:2], runs[2:5], runs[5:6], runs[6:])
        assert_delivered(adapter, reference(*runs))

    def test_a_table_that_is_described_anew_between_changes_of_the_same_rows(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        """As after a change of a type that takes nothing from the rows."""
        longer = replace(ITEMS, columns=(ITEMS.columns[0], Column("name", "text", typmod=30)))
        with builder.transaction():
            for key in "123":
                builder.insert(ITEMS, key, "first")
            builder.update(longer, "1", "second")
            builder.update(longer, "4", "second", key=["2", None])
            builder.delete(longer, key=["3", None])
            builder.update(ITEMS, "1", "third")
            builder.insert(ITEMS, "2", "third")
            builder.insert(longer, "3", "fourth")
        changes = builder.cut()
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))

    def test_changes_of_one_row_in_several_runs_tasks_and_batches(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        changes: list[Callable[[], None]] = [
            lambda: builder.insert(ITEMS, "1", "first"),
            lambda: builder.update(ITEMS, "2", UNSET, key=["1", None]),
            lambda: builder.insert(ITEMS, "1", "second"),
            lambda: builder.update(ITEMS, "3", UNSET, key=["2", None]),
            lambda: builder.update(ITEMS, "2", "swapped", key=["1", None]),
            lambda: builder.update(ITEMS, "1", UNSET, key=["3", None]),
            lambda: builder.delete(ITEMS, key=["2", None]),
            lambda: builder.update(ITEMS, "1", UNSET),
            lambda: builder.insert(ITEMS, "2", "again"),
            lambda: builder.delete(ITEMS, key=["1", None]),
        ]
        runs = []
        for change in changes:
            with builder.transaction():
                change()
            runs.append(builder.cut())
        destination = opened(adapter)
        deliver(destination, Frontier(0x10, 0x18), runs[:1])
        deliver(destination, Frontier(0x20, 0x28), runs[1:3], runs[3:4], runs[4:6])
        deliver(destination, builder.frontier, runs[6:8], runs[8:])
        assert_delivered(adapter, reference(*runs))

    def test_a_table_without_columns(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        needs_keyless(adapter)
        with builder.transaction():
            builder.insert(BARE)
            builder.insert(BARE)
        changes = builder.cut()
        deliver(opened(adapter, BARE), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes), BARE)
        if adapter.keeps == "changes":
            assert rows_of(adapter) == [("insert", {}, None)] * 2

    @pytest.mark.parametrize(
        ("schema", "name", "column"),
        [
            ("Sales", "Order Items", "Unit Price"),
            ("public", 'quo"ted\\', 'a"b\\c'),
            ("größe", "日本語の表", "列名"),
            ("..", "../../etc/passwd", "../x"),
            ("a.b", "c", "x.y"),
            ("_hidden", "%2e~", "{}[],:"),
            ("表" * 21, "表" * 21, "列" * 21),
        ],
    )
    def test_names_of_all_kinds(
        self, adapter: Adapter, builder: ChangeBuilder, schema: str, name: str, column: str
    ) -> None:
        odd = table(name, Column(column, "text", key=True), schema=schema, oid=30_001)
        other = f"2{name}".encode()[:63].decode(errors="ignore")
        like = table(other, Column(column, "text", key=True), schema=schema, oid=30_002)
        with builder.transaction():
            builder.insert(odd, "v")
            builder.insert(like, "w")
            builder.delete(odd, key=["v"])
        changes = builder.cut()
        if adapter.plain_names and not re.fullmatch("[A-Za-z0-9_ ]+", schema + name + column):
            with pytest.raises(TableRefused, match="is no name of a"):
                opened(adapter, odd, like)
            return
        deliver(opened(adapter, odd, like), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes), odd, like)
        if adapter.keeps == "changes":
            assert adapter.delivered()[0].tables == ((schema, name),)
            assert adapter.delivered()[0].new == {column: "v"}

    def test_texts_of_all_kinds(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        texts = [
            "",
            " ",
            'a"b',
            "back\\slash",
            "\t\r\n\b\f\x01\x1f\x7f",
            "é日本🎉",
            "null",
            "'",
            "\u2028",
        ]
        with builder.transaction():
            for number, text in enumerate(texts):
                builder.insert(ITEMS, str(number), text)
        changes = builder.cut()
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        if adapter.keeps == "changes":
            assert [change.new and change.new["name"] for change in adapter.delivered()] == texts

    def test_a_value_of_five_megabytes(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        huge = "x\ny" * (5 * 2**20 // 3)
        with builder.transaction():
            builder.insert(ITEMS, "1", huge)
            builder.insert(ITEMS, "2", "small")
        changes = builder.cut()
        if adapter.longest_text is not None:
            with pytest.raises(TableRefused, match="does not fit"):
                deliver(opened(adapter), builder.frontier, [changes])
            return
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        if adapter.keeps == "changes":
            first = adapter.delivered()[0].new
            assert first is not None
            assert first["name"] == huge

    def test_messages(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        with builder.transaction():
            builder.message("audit", b"within")
            builder.insert(ITEMS, "1", "a")
        builder.message("beat", "außen".encode(), transactional=False)
        with builder.transaction():
            builder.insert(ITEMS, "2", "b")
        changes = builder.cut()
        deliver(opened(adapter), builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        if adapter.keeps == "changes" and adapter.keeps_messages:
            found = [(c.prefix, c.content) for c in adapter.delivered() if c.op == "message"]
            assert found == [("audit", b"within"), ("beat", "außen".encode())]

    def test_rows_of_a_layout_that_no_schema_change_told_of(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        wider = table("items", *ITEMS.columns, Column("price", "text"))
        with builder.transaction():
            builder.insert(ITEMS, "1", "a")
            builder.insert(wider, "2", "b", "1.5")
            builder.update(wider, "1", "a", None)
        first = builder.cut()
        with builder.transaction():
            builder.insert(wider, "3", "c", "2")
        second = builder.cut()
        destination = opened(adapter)
        if not adapter.follows_columns:
            with pytest.raises(TableRefused, match=r"items"):
                deliver(destination, builder.frontier, [first, second])
            if not destination.capabilities.sends_at_once:
                assert_delivered(adapter, [])
            return
        deliver(destination, builder.frontier, [first, second])
        assert_delivered(adapter, reference(first, second))
        if adapter.keeps == "changes":
            news = [change.new for change in adapter.delivered()]
            assert news == [
                {"id": "1", "name": "a"},
                {"id": "2", "name": "b", "price": "1.5"},
                {"id": "1", "name": "a", "price": None},
                {"id": "3", "name": "c", "price": "2"},
            ]
