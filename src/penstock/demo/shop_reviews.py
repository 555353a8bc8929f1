"""A table that the demo's shop gets while its pipeline runs, with rows in it and soon busy."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from penstock.demo.shop_traffic import Statement
from penstock.demo.shop_values import ShopValues

REVIEWS = "reviews"
FILLED = 60_000


def add_reviews(conn: psycopg.Connection[Any], rows: int = FILLED) -> None:
    """Create the table with its rows, as a release of the shop's software might do."""
    with conn.transaction():
        conn.execute(
            "CREATE TABLE reviews (id bigint PRIMARY KEY, sku text NOT NULL,"
            " stars smallint NOT NULL CHECK (stars BETWEEN 1 AND 5), body text,"
            " written_at timestamptz NOT NULL DEFAULT now())"
        )
        conn.execute(
            "INSERT INTO reviews (id, sku, stars, body)"
            " SELECT n, 'SKU-' || lpad((n %% 2000 + 1)::text, 6, '0'), n %% 5 + 1,"
            " repeat('well made, ', n %% 20) FROM generate_series(1, %s) n",
            [rows],
        )


class ReviewTraffic:
    """What happens to reviews, those that were filled in included."""

    def __init__(self, seed: int, rows: int = FILLED) -> None:
        self._random = random.Random(seed)  # noqa: S311 (traffic, no secret)
        self._values = ShopValues(self._random)
        self._reviews = list(range(1, rows + 1))
        self._last = rows

    def kinds(self) -> Mapping[Callable[[], list[Statement]], int]:
        """By weight, beside those of ShopTraffic."""
        return {self._write: 8, self._edit: 6, self._renumber: 2, self._delete: 2}

    def _new_id(self) -> int:
        self._last += 1
        return self._last

    def _write(self) -> list[Statement]:
        self._reviews.append(review := self._new_id())
        return [
            Statement(
                "INSERT INTO reviews (id, sku, stars, body) VALUES (%s, %s, %s, %s)",
                (review, "SKU-000001", self._random.randint(1, 5), self._values.long_text()),
            )
        ]

    def _edit(self) -> list[Statement]:
        """It moves the row, often into a block that the copy has read already."""
        return [
            Statement(
                "UPDATE reviews SET stars = %s WHERE id = %s",
                (self._random.randint(1, 5), self._random.choice(self._reviews)),
            )
        ]

    def _renumber(self) -> list[Statement]:
        at = self._random.randrange(len(self._reviews))
        old, self._reviews[at] = self._reviews[at], self._new_id()
        return [Statement("UPDATE reviews SET id = %s WHERE id = %s", (self._reviews[at], old))]

    def _delete(self) -> list[Statement]:
        if len(self._reviews) < 10:
            return self._write()
        review = self._reviews.pop(self._random.randrange(len(self._reviews)))
        return [Statement("DELETE FROM reviews WHERE id = %s", (review,))]
