"""The demo's traffic: repeatable, consistent with itself, and of every kind."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

from penstock.demo import shop_stock
from penstock.demo.shop_reviews import ReviewTraffic
from penstock.demo.shop_schema import TABLES
from penstock.demo.shop_traffic import ShopTraffic, Statement, Transaction

STOCK = shop_stock.Stock(customers=100, products=100, orders=20, page_views=0)


def first(count: int, seed: int = 1) -> list[Transaction]:
    traffic = ShopTraffic(seed, STOCK)
    traffic.begin_truncating()
    return list(islice(iter(traffic.next, None), count))


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


def test_nothing_is_truncated_until_it_is_asked_for() -> None:
    traffic = ShopTraffic(1, STOCK)
    before = statements([traffic.next() for _ in range(1000)])
    assert not [s for s in before if s.text.startswith("TRUNCATE")]


def test_reviews_join_the_others() -> None:
    traffic = ShopTraffic(1, STOCK)
    traffic.join(ReviewTraffic(1, rows=50).kinds())
    reviews = set(range(1, 51))
    kinds = Counter[str]()
    for statement in statements([traffic.next() for _ in range(2000)]):
        kind = statement.text.split(" ")[0]
        if statement.text.startswith("INSERT INTO reviews"):
            assert statement.values[0] not in reviews
            reviews.add(statement.values[0])
        elif statement.text.startswith("UPDATE reviews SET id"):
            new, old = statement.values
            reviews.remove(old)
            reviews.add(new)
        elif statement.text.startswith("DELETE FROM reviews"):
            reviews.remove(statement.values[0])
        elif "reviews" in statement.text:
            assert statement.values[-1] in reviews
        else:
            kind = "of others"
        kinds[kind] += 1
    assert set(kinds) == {"INSERT", "UPDATE", "DELETE", "of others"}


def test_keys_are_changed_too() -> None:
    texts = {re.sub(r" WHERE.*", "", s.text) for s in statements(first(1000))}
    assert "UPDATE products SET sku = %s" in texts
    assert "UPDATE customers SET id = %s" in texts
    assert any(text.startswith("UPDATE order_items SET line = %s") for text in texts)


def test_unique_addresses_are_swapped_within_a_transaction() -> None:
    emails: dict[object, object] = {n: shop_stock.email(n) for n in range(1, STOCK.customers + 1)}
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
    products: set[object] = {shop_stock.sku(n) for n in range(1, STOCK.products + 1)}
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
