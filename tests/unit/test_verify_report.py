"""What verify tells: sums that differ, verdicts, and the lines of its report."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.cli.verify import show_report, summary
from penstock.model.table_name import TableName
from penstock.verify.checksums import Relation, Sums, chunk_digits
from penstock.verify.report import (
    ConstraintResult,
    Difference,
    TableComparison,
    VerifyReport,
)

EQUAL = TableComparison("public.a", "public.a", 5, 5)
DIFFERENT = TableComparison(
    "public.b",
    "store.b",
    5,
    4,
    differing=12,
    differences=(
        Difference("missing", "id=1"),
        Difference("different", "id=2", ("x", "y")),
        Difference("extra", "{3}", count=2),
    ),
)
BROKEN = ConstraintResult("public.a", "a_fk", "foreign key", ("(1)", "(2)"), more=True)
HOLDS = ConstraintResult("public.a", "a_key", "unique")
UNCHECKED = ConstraintResult("public.a", "a_excl", "exclusion", unchecked="too hard")


def report(
    *tables: TableComparison, constraints: tuple[ConstraintResult, ...] = ()
) -> VerifyReport:
    return VerifyReport("shop", 0x1000, False, tables, constraints)


class TestSums:
    def test_pieces_add_up(self) -> None:
        whole, parts = Sums(), Sums()
        whole.add([("0", 3, "30"), ("1", 1, "-7")])
        parts.add([("0", 1, "10")])
        parts.add([("1", 1, "-7"), ("0", 2, "20")])
        assert whole.differing(parts) == []
        assert parts.rows == 4

    def test_a_chunk_differs_by_count_sum_or_presence(self) -> None:
        one, other = Sums(), Sums()
        one.add([("a", 9, "1"), ("b", 1, "5"), ("c", 2, "0")])
        other.add([("a", 9, "2"), ("b", 2, "5"), ("d", 1, "0")])
        # Those with few rows first.
        assert one.differing(other) == ["d", "c", "b", "a"]

    @pytest.mark.parametrize(
        ("size", "digits"), [(0, 0), (2**20, 0), (2**20 + 1, 1), (2**30, 3), (2**50, 4)]
    )
    def test_larger_tables_have_more_chunks(self, size: int, digits: int) -> None:
        small = Relation(TableName("s", "t"), False, 0, 0)
        assert chunk_digits(small, Relation(TableName("s", "t"), False, 0, size)) == digits

    @pytest.mark.parametrize("blocks", [0, 1, 8192, 8193, 10**7])
    def test_pieces_cover_every_block_once(self, blocks: int) -> None:
        pieces = Relation(TableName("s", "t"), False, blocks, 0).pieces()
        texts = [piece.as_string(None) for piece in pieces]
        assert len(texts) <= 256
        assert texts[0].startswith("ctid >= '(0,0)'::tid")
        for before, after in pairwise(texts):
            end = before.partition("ctid < ")[2]
            assert end
            assert after.startswith(f"ctid >= {end}")
        # The last one has no end: a table grows.
        assert "<" not in texts[-1]


class TestVerdict:
    def test_everything_has_to_hold(self) -> None:
        assert report(EQUAL, constraints=(HOLDS, UNCHECKED)).equal
        assert not report(EQUAL, DIFFERENT).equal
        assert not report(EQUAL, constraints=(BROKEN,)).equal
        assert not report(TableComparison("a", "a", not_compared="why")).equal
        assert report(TableComparison("a", "a", skipped="why")).equal

    def test_one_line_says_it_all(self) -> None:
        text = summary(report(EQUAL, constraints=(HOLDS, UNCHECKED)))
        assert text == "equal: 1 tables, 5 rows, 1 constraints, at 0/1000"
        text = summary(report(EQUAL, DIFFERENT, constraints=(BROKEN,)))
        assert text == "NOT EQUAL: 1 of 2 tables, 1 constraints violated, at 0/1000"
        drove = VerifyReport("shop", 1, True, (EQUAL,), ())
        assert "was not running" in summary(drove)


def test_the_lines_of_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(
        report(
            EQUAL,
            DIFFERENT,
            TableComparison("public.c", "public.c", not_compared="it stands at 0/1"),
            TableComparison("public.d", "public.d", skipped="only inserts"),
            constraints=(BROKEN, HOLDS, UNCHECKED),
        )
    )
    assert capsys.readouterr().out.splitlines() == [
        "equal        public.a: 5 rows",
        "DIFFERENT    public.b → store.b: 5 rows in the source, 4 in the destination; 12 differ",
        "             missing in the destination: id=1",
        "             different: id=2 in x, y",
        "             only there: {3}, 2 times",
        "             and 8 more",
        "not compared public.c: it stands at 0/1",
        "skipped      public.d: only inserts",
        "VIOLATED     foreign key a_fk of public.a: (1), (2) and more",
        "unchecked    exclusion a_excl of public.a: too hard",
        "NOT EQUAL: 2 of 4 tables, 1 constraints violated, at 0/1000",
    ]


def test_json_is_whole() -> None:
    told = report(EQUAL, DIFFERENT, constraints=(BROKEN,)).to_json()
    assert (told["lsn"], told["equal"], told["rows"]) == ("0/1000", False, 10)
    assert told["tables"][1]["differences"][1]["columns"] == ("x", "y")
    assert [table["equal"] for table in told["tables"]] == [True, False]
    assert told["constraints"][0]["violations"] == ("(1)", "(2)")
