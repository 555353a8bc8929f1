"""Include and exclude patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.table_patterns import TablePatterns, parse_pattern


@pytest.mark.parametrize(
    ("pattern", "schema", "table", "expected"),
    [
        ("orders", "public", "orders", True),
        ("orders", "shop", "orders", False),
        ("shop.orders", "shop", "orders", True),
        ("shop.orders", "shop", "orders_old", False),
        ("shop.*", "shop", "anything", True),
        ("shop.*", "shopping", "anything", False),
        ("*.orders", "any", "orders", True),
        ("*.*", "any", "thing", True),
        ("*", "public", "t", True),
        ("*", "other", "t", False),
        ("audit_*", "public", "audit_2026", True),
        ("audit_*", "public", "xaudit_2026", False),
        ("t?", "public", "t1", True),
        ("t?", "public", "t", False),
        ("t?", "public", "t12", False),
        ("Orders", "public", "orders", False),
        ('"My Schema"."My.Table"', "My Schema", "My.Table", True),
        ('"My Schema"."My.Table"', "My Schema", "MyxTable", False),
        ('"a*"', "public", "a*", True),
        ('"a*"', "public", "ab", False),
        ('"say ""hi"""', "public", 'say "hi"', True),
        ('shop."Größe"', "shop", "Größe", True),
        ("a[bc]", "public", "a[bc]", True),
        ("a[bc]", "public", "ab", False),
        ("a+", "public", "aa", False),
    ],
)
def test_match(pattern: str, schema: str, table: str, expected: bool) -> None:
    assert TablePatterns([pattern]).matches(schema, table) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ".",
        "a.",
        ".a",
        "a.b.c",
        "a b",
        '"a',
        'a"',
        '"a"b',
        '""',
        "a..b",
        '"a".',
        'a."b".c',
        " a",
    ],
)
def test_bad_patterns_name_themselves(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a table pattern") as caught:
        parse_pattern(pattern)
    assert repr(pattern) in str(caught.value)


def test_exclude_wins() -> None:
    patterns = TablePatterns(["public.*", "shop.orders"], ["public.audit_*", "*.orders"])
    assert patterns.matches("public", "users")
    assert not patterns.matches("public", "audit_log")
    assert not patterns.matches("shop", "orders")
    assert patterns.excluded("public", "audit_log")


def test_a_table_is_named_only_without_wildcards() -> None:
    patterns = TablePatterns(["public.*", "shop.orders", '"*"'], ["shop.old"])
    assert patterns.names("shop", "orders")
    assert patterns.names("public", "*")
    assert not patterns.names("public", "users")


_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@given(_names, _names, _names)
def test_a_quoted_pattern_matches_exactly_its_own_name(schema: str, table: str, other: str) -> None:
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))
    patterns = TablePatterns([quoted])
    assert patterns.names(schema, table)
    assert patterns.matches(schema, other) == (other == table)


class TestRules:
    patterns = TablePatterns(["shop.*", "orders"], ["shop.audit_*"], ["shop.log_*"])

    def test_they_win_over_include_and_exclude(self) -> None:
        ruled = self.patterns.with_rules(
            {
                ("shop", "audit_1"): "add",
                ("other", "items"): "add",
                ("shop", "items"): "remove",
                ("public", "orders"): "remove",
            }
        )
        for name in [("shop", "audit_1"), ("other", "items")]:
            assert ruled.matches(*name)
            assert ruled.names(*name)
            assert not ruled.excluded(*name)
        for name in [("shop", "items"), ("public", "orders")]:
            assert not ruled.matches(*name)
            assert not ruled.names(*name)
            assert ruled.excluded(*name)

    def test_the_others_stay_as_they_were(self) -> None:
        ruled = self.patterns.with_rules({("shop", "items"): "remove"})
        assert ruled.matches("shop", "more")
        assert not ruled.matches("shop", "audit_2")
        assert ruled.names("public", "orders")
        assert [pattern.text for pattern in ruled.insert_only] == ["shop.log_*"]
        assert self.patterns.matches("shop", "items")
