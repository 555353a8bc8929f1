"""Which of many rows the server refuses, found by ever smaller halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg

from penstock.destination.postgres.sessions.session import is_refusal


def refused_rows(
    first: int, last: int, attempt: Callable[[int, int], None]
) -> Iterator[tuple[int, psycopg.Error]]:
    """Do ``attempt`` to the rows from ``first`` up to ``last``, or if that is refused, to halves.

    ``attempt`` does all or nothing. Gives each row that is refused by itself, and why; the rows
    behind it have not been tried yet then.
    """
    if first == last:
        return
    try:
        attempt(first, last)
    except psycopg.Error as error:
        if not is_refusal(error):
            raise
        if last - first == 1:
            yield first, error
            return
    else:
        return
    half = first + (last - first) // 2
    yield from refused_rows(first, half, attempt)
    yield from refused_rows(half, last, attempt)
