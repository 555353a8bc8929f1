"""The text of a row condition: what is taken, and what is refused, where and why."""

from __future__ import annotations

import pickle

import pytest

from penstock.config.row_condition_syntax import parse_condition
from penstock.config.row_condition_tree import (
    ColumnName,
    Comparison,
    ConditionError,
    IsNull,
    Junction,
    Like,
    Literal,
    Negative,
    Node,
    Not,
)


def test_a_condition_becomes_a_tree_with_places() -> None:
    tree = parse_condition("total > 100 AND status <> 'draft'")
    assert tree == Junction(
        1,
        True,
        Comparison(1, ">", ColumnName(1, "total"), Literal(9, "100", is_number=True)),
        Comparison(17, "<>", ColumnName(17, "status"), Literal(27, "draft")),
    )
    assert pickle.loads(pickle.dumps(tree)) == tree  # noqa: S301


@pytest.mark.parametrize(
    ("text", "name"),
    [("Total IS NULL", "total"), ('"Total" IS NULL', "Total"), ('"a b" IS NULL', "a b")],
)
def test_names_are_folded_unless_they_are_quoted(text: str, name: str) -> None:
    tree = parse_condition(text)
    assert isinstance(tree, IsNull)
    assert isinstance(tree.of, ColumnName)
    assert tree.of.name == name


def test_a_long_chain_is_no_deep_tree() -> None:
    text = " OR ".join(f"a = {n} AND b" for n in range(600))
    depth, level = 0, [parse_condition(text)]
    leaves: list[str | None] = []
    while level:
        depth += 1
        leaves += [node.right.text for node in level if isinstance(node, Comparison)]  # type: ignore[attr-defined]
        level = [
            child
            for node in level
            if isinstance(node, Junction)
            for child in (node.left, node.right)
        ]
    assert depth < 15
    assert sorted(map(str, range(600))) == sorted(map(str, leaves))


def placeless(node: Node) -> str:
    """The tree as it is written with all parentheses."""
    match node:
        case ColumnName():
            return node.name
        case Literal():
            return f"{node.text}::{node.cast}" if node.cast else str(node.text)
        case Negative():
            return f"-{placeless(node.of)}"
        case Not():
            return f"not({placeless(node.of)})"
        case IsNull():
            return f"null({placeless(node.of)})"
        case Junction():
            word = "and" if node.is_and else "or"
            return f"({placeless(node.left)} {word} {placeless(node.right)})"
        case Like():
            return f"like({placeless(node.of)} {node.pattern} {node.escape} {node.ignore_case})"
        case _:
            left, right = placeless(node.left), placeless(node.right)  # type: ignore[attr-defined]
            return f"({left} {node.operator} {right})"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a OR b AND NOT c", "(a or (b and not(c)))"),
        ("NOT a = b", "not((a = b))"),
        ("a = b IS NULL", "null((a = b))"),
        ("a NOTNULL", "not(null(a))"),
        ("a IS NOT NULL", "not(null(a))"),
        ("a - b - c * -2 = 1", "(((a - b) - (c * -2)) = 1)"),
        ("a BETWEEN 1 AND 2 OR b", "(((a >= 1) and (a <= 2)) or b)"),
        ("a NOT BETWEEN 1 AND 2", "not(((a >= 1) and (a <= 2)))"),
        ("a IS NOT DISTINCT FROM b", "(a IS NOT DISTINCT FROM b)"),
        ("a != 'it''s'", "(a <> it's)"),
        ("a NOT LIKE 'x!_' ESCAPE '!'", "not(like(a x!_ ! False))"),
        ("a ILIKE 'x'", r"like(a x \ True)"),
        ("d < DATE '2024-01-01'", "(d < 2024-01-01::date)"),
        ("d < '2024-01-01'::timestamptz", "(d < 2024-01-01::timestamptz)"),
        ("m = 'x'::shop.mood", "(m = x::mood)"),
        ("(a = b) = c -- so", "((a = b) = c)"),
    ],
)
def test_operators_bind_as_in_postgres(text: str, meaning: str) -> None:
    assert placeless(parse_condition(text)) == meaning


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("", 1, "not one SQL expression"),
        ("a = 1; DROP TABLE t", 1, "not one SQL expression"),
        ("a = 1 b", 1, "is not supported"),
        ("a >", 3, "something is wrong at >"),
        ("x AND\n(a = 1", 12, "something is wrong at 1"),
        ("a = 'x", 1, "not an SQL expression"),
        ("SELECT 1", 8, "is not supported"),
        ("b OR a IN (SELECT 1)", 6, "is not supported"),
        ("b OR a = ANY(ARRAY[1])", 20, "is not supported"),
        ("a < b < c", 1, "a < b needs parentheses"),
        ("a = NOT b", 9, "NOT b needs parentheses"),
        ("b AND now() > d", 7, "is not supported"),
        ("b AND random() > 0.5", 7, "is not supported"),
        ("pg_sleep(9) IS NULL", 1, "is not supported"),
        ("a % 2 = 0", 1, "a % 2 is not supported"),
        ("a::text = 'x'", 1, "only a literal can be cast"),
        ("a = 1::numeric(4,2)", 5, "is not supported"),
        ("t.a = 1", 1, "t.a is not supported"),
        ("b AND a LIKE c", 7, "one pattern in quotes"),
        ("a LIKE 'x\\'", 1, "ends with its escape character"),
        ("a LIKE 'x' ESCAPE 'yy'", 1, "ESCAPE takes one character"),
        ("a BETWEEN SYMMETRIC 2 AND 1", 1, "is not supported"),
        ("a ->> 'k' = 'v'", 1, "is not supported"),
        ("a = E'x'", 5, "is not supported"),
        ("a = $1", 6, "is not supported"),
        ("nvl(a, 1) = 1", 1, "is not supported"),
        ('a COLLATE "de_DE" < b', 1, 'with "C" alone'),
        ("b AND " + " + ".join(["a"] * 200) + " = 1", 7, "nested too deeply"),
        ("(" * 500 + "a" + ")" * 500, 1, "nested too deeply"),
    ],
)
def test_everything_else_is_refused(text: str, at: int, reason: str) -> None:
    with pytest.raises(ConditionError, match=reason) as found:
        parse_condition(text)
    assert found.value.at == at
