"""What happens in the demo's shop: transactions made up from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from penstock.demo.shop_stock import Stock, email, line_cents, order_id, sku
from penstock.demo.shop_values import ShopValues, money

_STATUSES = ("new", "paid", "packed", "sent", "returned")
_TRANSACTIONS_PER_TRUNCATE = 400


@dataclass(frozen=True)
class Statement:
    """One statement with its values."""

    text: LiteralString
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Transaction:
    """Statements that belong together; a few of them are taken back."""

    statements: tuple[Statement, ...]
    rolled_back: bool = False


class ShopTraffic:
    """An endless row of transactions; the same seed makes the same row.

    Knows which keys exist, those of the stock that is there before included, so that updates and
    deletes find their rows. For that it relies on every transaction being executed, in order, by
    one client.
    """

    def __init__(self, seed: int, stock: Stock) -> None:
        self._random = random.Random(seed)  # noqa: S311 (traffic, no secret)
        self._values = ShopValues(self._random)
        self._customers = list(range(1, stock.customers + 1))
        self._products = [sku(number) for number in range(1, stock.products + 1)]
        self._orders = [order_id(number) for number in range(1, stock.orders + 1)]
        # The price of one piece, in cents, by order and line.
        self._lines = {order: line_cents(n) for n, order in enumerate(self._orders, start=1)}
        self._emails = {customer: email(customer) for customer in self._customers}
        self._carts: list[str] = []
        self._last_customer, self._last_product = stock.customers, stock.products
        self._last_payment = stock.orders
        self._until_truncate = _TRANSACTIONS_PER_TRUNCATE
        self._truncates = False
        kinds: dict[Callable[[], list[Statement]], int] = {
            self._place_order: 28,
            self._advance_order: 16,
            self._fill_cart: 16,
            self._view_page: 14,
            self._change_price: 7,
            self._change_customer: 6,
            self._add_customer: 5,
            self._cancel_order: 4,
            self._swap_emails: 2,
            self._rename_product: 2,
            self._renumber_line: 3,
            self._leave_cart: 3,
            self._correct_page_view: 3,
            self._forget_page_view: 3,
            self._add_product: 1,
            self._describe_product: 1,
            self._drop_product: 1,
            self._delete_customer: 1,
        }
        self._kinds: Mapping[Callable[[], list[Statement]], int] = kinds

    def join(self, kinds: Mapping[Callable[[], list[Statement]], int]) -> None:
        """From the next transaction on these happen too, as often as their weights say."""
        self._kinds = {**self._kinds, **kinds}

    def begin_truncating(self) -> None:
        """From now on a table is emptied now and then. While it is copied, its copy would begin
        anew each time.
        """
        self._truncates = True

    def next(self) -> Transaction:
        """The transaction that happens next."""
        self._until_truncate -= self._truncates
        if self._until_truncate == 0:
            self._until_truncate = _TRANSACTIONS_PER_TRUNCATE
            return Transaction(tuple(self._empty_carts()))
        if self._values.chance(0.02):
            # It touches rows that exist, and none of it may ever be delivered.
            return Transaction(tuple(self._change_price() + self._view_page()), rolled_back=True)
        kinds = self._kinds
        (kind,) = self._random.choices(list(kinds), list(kinds.values()))
        return Transaction(tuple(kind()))

    # -- customers -------------------------------------------------------------------------------

    def _add_customer(self) -> list[Statement]:
        self._last_customer += 1
        customer = self._last_customer
        self._customers.append(customer)
        self._emails[customer] = email(customer)
        return [
            Statement(
                "INSERT INTO customers (id, email, name, tags, profile, credit, member_until)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    customer,
                    self._emails[customer],
                    self._values.maybe(self._values.word()),
                    self._values.words(),
                    self._values.maybe(self._values.document()),
                    f"{self._random.randrange(100000)}.{self._random.randrange(100):02d}",
                    self._random.choice((None, "infinity", "2030-06-01 12:00:00.123456+02")),
                ),
            )
        ]

    def _change_customer(self) -> list[Statement]:
        customer = self._random.choice(self._customers)
        if self._values.chance(0.1):
            # A new key for the same row.
            self._customers.remove(customer)
            self._last_customer += 1
            self._customers.append(self._last_customer)
            self._emails[self._last_customer] = self._emails.pop(customer)
            return [
                Statement(
                    "UPDATE customers SET id = %s WHERE id = %s", (self._last_customer, customer)
                )
            ]
        return [
            Statement(
                "UPDATE customers SET profile = %s, tags = %s, credit = credit - %s WHERE id = %s",
                (
                    self._values.document(),
                    self._values.words(),
                    self._random.randrange(50),
                    customer,
                ),
            )
        ]

    def _delete_customer(self) -> list[Statement]:
        if len(self._customers) < 50:
            return self._add_customer()
        customer = self._customers.pop(self._random.randrange(len(self._customers)))
        del self._emails[customer]
        return [Statement("DELETE FROM customers WHERE id = %s", (customer,))]

    def _swap_emails(self) -> list[Statement]:
        """The address is unique: whichever row is written first meets the other one's."""
        one, other = self._random.sample(self._customers, 2)
        emails = self._emails
        emails[one], emails[other] = emails[other], emails[one]
        return [
            Statement("UPDATE customers SET email = %s WHERE id = %s", (email, customer))
            for email, customer in (
                ("on its way", one),
                (emails[other], other),
                (emails[one], one),
            )
        ]

    # -- products --------------------------------------------------------------------------------

    def _add_product(self) -> list[Statement]:
        self._last_product += 1
        product = sku(self._last_product)
        self._products.append(product)
        return [
            Statement(
                "INSERT INTO products (sku, barcode, name, price, stock, size_cm, attributes,"
                " description) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    product,
                    self._values.uuid(),
                    f"Product {self._values.word()}",
                    self._values.price(),
                    self._random.randrange(10000),
                    self._values.maybe([self._random.uniform(0.1, 300.0) for _ in range(3)]),
                    self._values.document(),
                    self._values.long_text(),
                ),
            )
        ]

    def _change_price(self) -> list[Statement]:
        return [
            Statement(
                "UPDATE products SET price = %s, changed_at = now() WHERE sku = %s",
                (self._values.price(), self._random.choice(self._products)),
            )
        ]

    def _rename_product(self) -> list[Statement]:
        """The key changes while the long description stays: it is sent under neither key."""
        at = self._random.randrange(len(self._products))
        old = self._products[at]
        self._last_product += 1
        self._products[at] = sku(self._last_product)
        return [
            Statement("UPDATE products SET sku = %s WHERE sku = %s", (self._products[at], old)),
        ]

    def _describe_product(self) -> list[Statement]:
        return [
            Statement(
                "UPDATE products SET description = %s WHERE sku = %s",
                (self._values.long_text(), self._random.choice(self._products)),
            )
        ]

    def _drop_product(self) -> list[Statement]:
        if len(self._products) < 50:
            return self._add_product()
        product = self._products.pop(self._random.randrange(len(self._products)))
        return [Statement("DELETE FROM products WHERE sku = %s", (product,))]

    # -- orders ----------------------------------------------------------------------------------

    def _place_order(self) -> list[Statement]:
        order = self._values.uuid()
        self._orders.append(order)
        lines = {
            line: (self._random.randint(1, 9), self._random.randrange(10**6))
            for line in range(1, self._random.randint(2, 5))
        }
        self._lines[order] = {line: cents for line, (_, cents) in lines.items()}
        total = money(sum(quantity * cents for quantity, cents in lines.values()))
        statements = [
            Statement(
                "INSERT INTO orders (id, customer_id, total, gift, note, ship_to, deliver_on)"
                " VALUES (%s, %s, %s, %s, %s, %s, current_date + %s::int)",
                (
                    order,
                    self._random.choice(self._customers),
                    total,
                    self._values.chance(0.2),
                    self._values.maybe(self._values.word()),
                    self._values.maybe(self._values.document()),
                    self._values.maybe(self._random.randrange(1, 30)),
                ),
            )
        ]
        for line, (quantity, cents) in lines.items():
            product = self._random.choice(self._products)
            statements += [
                Statement(
                    "INSERT INTO order_items (order_id, line, sku, quantity, price)"
                    " VALUES (%s, %s, %s, %s, %s)",
                    (order, line, product, quantity, money(cents)),
                ),
                Statement("UPDATE products SET stock = stock - 1 WHERE sku = %s", (product,)),
            ]
        self._last_payment += 1
        statements.append(
            Statement(
                "INSERT INTO payments (id, order_id, method, amount, fee_rate, receipt, settles_in)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    self._last_payment,
                    order,
                    self._random.choice(("card", "transfer", "voucher")),
                    total,
                    self._random.random(),
                    self._values.maybe(self._random.randbytes(self._random.randrange(12))),
                    self._random.choice((None, "3 days", "1 mon -04:05:06.789", "00:00:00")),
                ),
            )
        )
        return statements

    def _advance_order(self) -> list[Statement]:
        if not self._orders:
            return self._place_order()
        return [
            Statement(
                "UPDATE orders SET status = %s, note = %s WHERE id = %s",
                (
                    self._random.choice(_STATUSES),
                    self._values.maybe(self._values.word()),
                    self._random.choice(self._orders),
                ),
            )
        ]

    def _cancel_order(self) -> list[Statement]:
        if not self._orders:
            return self._place_order()
        order = self._orders.pop(self._random.randrange(len(self._orders)))
        del self._lines[order]
        return [
            Statement("DELETE FROM payments WHERE order_id = %s", (order,)),
            Statement("DELETE FROM orders WHERE id = %s", (order,)),
        ]

    def _renumber_line(self) -> list[Statement]:
        """A part of a composite key changes, and one piece more is ordered and paid."""
        if not self._orders:
            return self._place_order()
        order = self._random.choice(self._orders)
        lines = self._lines[order]
        old, new = min(lines), max(lines) + 1
        if new > 30000:  # the column is a smallint
            return self._advance_order()
        lines[new] = lines.pop(old)
        more = money(lines[new])
        return [
            Statement(
                "UPDATE order_items SET line = %s, quantity = quantity + 1"
                " WHERE order_id = %s AND line = %s",
                (new, order, old),
            ),
            Statement("UPDATE orders SET total = total + %s WHERE id = %s", (more, order)),
            Statement(
                "UPDATE payments SET amount = amount + %s WHERE order_id = %s", (more, order)
            ),
        ]

    # -- page views: no key, and many rows that are the same -------------------------------------

    def _view_page(self) -> list[Statement]:
        view = Statement(
            "INSERT INTO page_views (path, referrer, millis) VALUES (%s, %s, %s)",
            (
                f"/p/{self._random.randrange(40)}",
                self._values.maybe(self._values.word()),
                self._values.maybe(self._random.choice((0.1, 12.5, 33.333))),
            ),
        )
        return [view] * self._random.choice((1, 1, 2, 3))

    def _correct_page_view(self) -> list[Statement]:
        return [
            Statement(
                "UPDATE page_views SET referrer = %s WHERE ctid ="
                " (SELECT ctid FROM page_views WHERE path = %s LIMIT 1)",
                (self._values.word(), f"/p/{self._random.randrange(40)}"),
            )
        ]

    def _forget_page_view(self) -> list[Statement]:
        return [
            Statement(
                "DELETE FROM page_views WHERE ctid ="
                " (SELECT ctid FROM page_views WHERE path = %s LIMIT 1)",
                (f"/p/{self._random.randrange(40)}",),
            )
        ]

    # -- carts -----------------------------------------------------------------------------------

    def _fill_cart(self) -> list[Statement]:
        known = bool(self._carts) and self._values.chance(0.6)
        session = self._random.choice(self._carts) if known else self._values.uuid()
        if not known:
            self._carts.append(session)
        return [
            Statement(
                "INSERT INTO carts (session, lines, coupons) VALUES (%s, %s, %s)"
                " ON CONFLICT (session) DO UPDATE SET lines = excluded.lines, touched_at = now()",
                (session, self._values.document(), self._values.maybe(self._values.words())),
            )
        ]

    def _leave_cart(self) -> list[Statement]:
        if not self._carts:
            return self._fill_cart()
        session = self._carts.pop(self._random.randrange(len(self._carts)))
        return [Statement("DELETE FROM carts WHERE session = %s", (session,))]

    def _empty_carts(self) -> list[Statement]:
        """TRUNCATE between two inserts of one transaction: only the later one may be left."""
        self._carts.clear()
        before = self._fill_cart()
        self._carts.clear()
        return [*before, Statement("TRUNCATE carts"), *self._fill_cart()]
