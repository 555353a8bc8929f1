"""The demo's traffic: repeatable, consistent with itself, and of every kind."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

from penstock.demo.shop_schema import TABLES
from penstock.demo.shop_traffic import ShopTraffic, Statement, Transaction


def first(count: int, seed: int = 1) -> list[Transaction]:
    traffic = ShopTraffic(seed)
    return [*traffic.opening(), *islice(iter(traffic.next, None), count)]


def statements(transactions: list[Transaction]) -> list[Statement]:
    return [s for transaction in transactions for s in transaction.statements]


def test_a_seed_makes_the_same_traffic() -> None:
    assert first(500) == first(500)
    assert first(500) != first(500, seed=2)


def test_every_table_gets_every_kind_of_change() -> None:
    seen = Counter(
        (match[1], match[2])
        for statement in statements(first(3000))
        if (match := re.match(r"(INSERT INTO|UPDATE|DELETE FROM|TRUNCATE) (\w+)", statement.text))
    )
    for table in TABLES:
        assert seen["INSERT INTO", table], table
    # An order's items go with the order, by the foreign key.
    for table in set(TABLES) - {"order_items"}:
        assert seen["DELETE FROM", table], table
    # A cart is updated by its upsert.
    for table in set(TABLES) - {"carts"}:
        assert seen["UPDATE", table], table
    assert seen["TRUNCATE", "carts"] >= 5


def test_keys_are_changed_too() -> None:
    texts = {re.sub(r" WHERE.*", "", s.text) for s in statements(first(1000))}
    assert "UPDATE products SET sku = %s" in texts
    assert "UPDATE customers SET id = %s" in texts
    assert any(text.startswith("UPDATE order_items SET line = %s") for text in texts)


def test_unique_addresses_are_swapped_within_a_transaction() -> None:
    emails: dict[object, object] = {}
    swaps = 0
    for transaction in first(2000):
        before = dict(emails)
        for statement in transaction.statements:
            if statement.text.startswith("INSERT INTO customers"):
                emails[statement.values[0]] = statement.values[1]
            elif statement.text.startswith("UPDATE customers SET email"):
                email, customer = statement.values
                emails[customer] = email
            elif statement.text.startswith("UPDATE customers SET id"):
                new, old = statement.values
                emails[new] = emails.pop(old)
            elif statement.text.startswith("DELETE FROM customers"):
                del emails[statement.values[0]]
            assert len(set(emails.values())) == len(emails)
        changed = [customer for customer in before if emails.get(customer) != before[customer]]
        if "SET email" in transaction.statements[0].text:
            swaps += 1
            one, other = changed
            assert (emails[one], emails[other]) == (before[other], before[one])
    assert swaps > 10


def test_a_rolled_back_transaction_changes_no_keys() -> None:
    taken_back = [t for t in first(2000) if t.rolled_back]
    assert taken_back
    for statement in statements(taken_back):
        assert statement.text.startswith(("UPDATE products SET price", "INSERT INTO page_views"))


def test_updates_and_deletes_name_rows_that_exist() -> None:
    products: set[object] = set()
    for statement in statements(first(3000)):
        if statement.text.startswith("INSERT INTO products"):
            products.add(statement.values[0])
        elif statement.text.startswith("UPDATE products SET sku"):
            new, old = statement.values
            assert new not in products
            products.remove(old)
            products.add(new)
        elif statement.text.startswith("UPDATE products"):
            assert statement.values[-1] in products
        elif statement.text.startswith("DELETE FROM products"):
            products.remove(statement.values[0])
