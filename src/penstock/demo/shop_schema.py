"""The demo's shop: a few tables that cover what makes replication hard."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

TABLES = (
    "customers",
    "products",
    "orders",
    "order_items",
    "payments",
    "page_views",
    "carts",
)
"""All of schema public at the start, in the order in which the demo shows them."""

SUMS: dict[str, LiteralString] = {
    "orders": "SELECT coalesce(sum(total), 0) FROM public.orders",
    "payments": "SELECT coalesce(sum(amount), 0) FROM public.payments",
    "order_items": "SELECT coalesce(sum(quantity * price), 0) FROM public.order_items",
}
"""The invariant: every transaction leaves these three equal, and many change all of them."""

# products.description is stored out of line, so that an update that leaves it alone does not send
# it; page_views has no key, and so sends whole old rows; deleting an order deletes its items.
_DDL = """
CREATE TYPE order_status AS ENUM ('new', 'paid', 'packed', 'sent', 'returned');

CREATE TABLE customers (
    id            bigint PRIMARY KEY,
    email         text NOT NULL UNIQUE,
    name          text,
    tags          text[] NOT NULL DEFAULT '{}',
    profile       jsonb,
    credit        numeric(12, 2) NOT NULL DEFAULT 0,
    member_until  timestamptz,
    registered_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE products (
    sku         text PRIMARY KEY,
    barcode     uuid NOT NULL,
    name        text NOT NULL,
    price       numeric NOT NULL,
    stock       integer NOT NULL,
    size_cm     double precision[],
    attributes  jsonb NOT NULL,
    description text NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE products ALTER COLUMN description SET STORAGE EXTERNAL;

CREATE TABLE orders (
    id          uuid PRIMARY KEY,
    customer_id bigint NOT NULL,
    total       numeric(14, 2) NOT NULL,
    status      order_status NOT NULL DEFAULT 'new',
    gift        boolean NOT NULL DEFAULT false,
    note        text,
    ship_to     jsonb,
    deliver_on  date,
    placed_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE order_items (
    order_id uuid REFERENCES orders ON DELETE CASCADE,
    line     smallint,
    sku      text NOT NULL,
    quantity integer NOT NULL,
    price    numeric NOT NULL,
    PRIMARY KEY (order_id, line)
);

CREATE TABLE payments (
    id         bigint PRIMARY KEY,
    order_id   uuid NOT NULL UNIQUE,
    method     text NOT NULL,
    amount     numeric(14, 2) NOT NULL,
    fee_rate   double precision NOT NULL,
    receipt    bytea,
    settles_in interval,
    paid_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE page_views (
    path     text NOT NULL,
    referrer text,
    millis   real,
    seen_on  date NOT NULL DEFAULT current_date
);
ALTER TABLE page_views REPLICA IDENTITY FULL;

CREATE TABLE carts (
    session    uuid PRIMARY KEY,
    lines      jsonb NOT NULL,
    coupons    text[],
    touched_at timestamptz NOT NULL DEFAULT now()
);
"""


def create_shop(conn: psycopg.Connection[Any]) -> None:
    """Create the shop's empty tables."""
    with conn.transaction():
        conn.execute(_DDL)
