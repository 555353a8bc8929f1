"""What the demo's shop holds before anybody follows it: rows that have to be copied.

They are made in the server, by rules that are known here too, so that the traffic finds them.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg


@dataclass(frozen=True)
class Stock:
    """How many rows of each table there are. An order has two items and one payment."""

    customers: int
    products: int
    orders: int
    page_views: int

    @property
    def rows(self) -> int:
        return self.customers + self.products + 4 * self.orders + self.page_views


SHOP = Stock(customers=20_000, products=2_000, orders=25_000, page_views=10_000)
# Without a key a removed row is found by reading the whole table, so there are fewer page views.


def email(customer: int) -> str:
    return f"customer{customer}@example.com"


def sku(product: int) -> str:
    return f"SKU-{product:06d}"


def order_id(order: int) -> str:
    digest = hashlib.md5(f"order {order}".encode(), usedforsecurity=False)
    return str(uuid.UUID(digest.hexdigest()))


def line_cents(order: int) -> dict[int, int]:
    """The price of one piece, in cents, by line."""
    return {line: (order * 37 + line * 101) % 100_000 for line in (1, 2)}


_CUSTOMERS: LiteralString = """
INSERT INTO customers (id, email, name, tags, profile, credit, member_until)
SELECT n, format('customer%%s@example.com', n), 'Customer ' || n, ARRAY['filled', NULL, 'a,b'],
       jsonb_build_object('since', n, 'deep', ARRAY[n, 1.5]), n %% 1000,
       CASE WHEN n %% 3 = 0 THEN timestamptz 'infinity' END
  FROM generate_series(1, %s) n
"""
# Incompressible and long, so that it is stored out of line.
_PRODUCTS: LiteralString = """
INSERT INTO products (sku, barcode, name, price, stock, size_cm, attributes, description)
SELECT 'SKU-' || lpad(n::text, 6, '0'), md5('barcode ' || n)::uuid, 'Product ' || n, n * 0.37,
       n %% 10000, ARRAY[n / 7.0, 0.1], jsonb_build_object('n', n),
       (SELECT string_agg(md5(n || ' ' || part), '') FROM generate_series(1, 90) part)
  FROM generate_series(1, %s) n
"""
_ITEMS: LiteralString = """
INSERT INTO order_items (order_id, line, sku, quantity, price)
SELECT md5('order ' || n)::uuid, line, 'SKU-' || lpad((n %% %s + 1)::text, 6, '0'),
       1 + (n + line) %% 9, ((n * 37 + line * 101) %% 100000)::numeric / 100
  FROM generate_series(1, %s) n, generate_series(1, 2) line
"""
_ORDERS: LiteralString = """
INSERT INTO orders (id, customer_id, total, status, note)
SELECT md5('order ' || n)::uuid, n %% %s + 1, i.total, 'paid', 'order ' || n
  FROM generate_series(1, %s) n
  JOIN (SELECT order_id, sum(quantity * price) AS total FROM order_items GROUP BY 1) i
    ON i.order_id = md5('order ' || n)::uuid
"""
_PAYMENTS: LiteralString = """
INSERT INTO payments (id, order_id, method, amount, fee_rate, receipt)
SELECT n, o.id, 'card', o.total, n / 1e6, decode(md5(n::text), 'hex')
  FROM generate_series(1, %s) n JOIN orders o ON o.id = md5('order ' || n)::uuid
"""
_PAGE_VIEWS: LiteralString = """
INSERT INTO page_views (path, referrer, millis)
SELECT '/p/' || n %% 40, CASE WHEN n %% 2 = 0 THEN 'filled' END, n %% 5
  FROM generate_series(1, %s) n
"""


def fill_shop(conn: psycopg.Connection[Any], stock: Stock) -> None:
    """Fill the shop's empty tables."""
    with conn.transaction():
        # The items come before their orders, whose totals they make.
        conn.execute("SET LOCAL session_replication_role TO replica")
        conn.execute(_CUSTOMERS, [stock.customers])
        conn.execute(_PRODUCTS, [stock.products])
        conn.execute(_ITEMS, [stock.products, stock.orders])
        conn.execute(_ORDERS, [stock.customers, stock.orders])
        conn.execute(_PAYMENTS, [stock.orders])
        conn.execute(_PAGE_VIEWS, [stock.page_views])
