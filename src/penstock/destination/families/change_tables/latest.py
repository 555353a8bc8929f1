"""The rows that a change table leaves, as one query over it. Pure.

A row's changes form a *life*: it begins where the row is inserted or read under a key, or comes to
it from another one, and ends where it is deleted or leaves the key. A column that a change came
without keeps what it was, so a life that begins with a move goes on from the one that was left.
"""

# ruff: noqa: S608 (names are quoted)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.destination.families.target import Target

_FIXED = {
    *("bool", "int2", "int4", "int8", "oid", "xid", "cid", "xid8", "float4", "float8", "uuid"),
    *("date", "time", "timestamp", "timestamptz"),
}
"""Types whose values Postgres never keeps apart from their row: a change always has them."""


class LatestDialect(ABC):
    """How an engine writes what engines do not write alike."""

    wide: str
    """An integer of 38 digits."""
    names_recursion: bool = False
    """A query that names itself has to list its columns."""

    @abstractmethod
    def quoted(self, name: str) -> str: ...

    @abstractmethod
    def old_value(self, column: str, plain: str) -> str:
        """A column of the old image in ``_old``, in its type."""

    @abstractmethod
    def is_unset(self, column: str) -> str:
        """Whether ``_unset`` names a column."""

    def identity(self, value: str, plain: str) -> Sequence[str]:
        """What is equal where two values of a key are equal to Postgres."""
        return (value,)

    @abstractmethod
    def left(self, lives: str, life: Sequence[str], columns: Sequence[LatestColumn]) -> str:
        """Of each life the last value that was sent of each column, as a query. ``lives`` holds the
        changes as ``c``, and ``life`` tells one from the other.
        """


@dataclass(frozen=True)
class LatestColumn:
    """``name`` is quoted. ``value`` is null where ``is_unset``; a column without one is always
    there. ``plain`` is its type.
    """

    name: str
    plain: str
    value: str
    is_unset: str | None


class WindowedLatest(LatestDialect):
    """For engines that number rows, and have no aggregate that picks one value by another."""

    def left(self, lives: str, life: Sequence[str], columns: Sequence[LatestColumn]) -> str:
        by = f"PARTITION BY {_listed(life)} ORDER BY"
        values = [
            f"c.{each.value}"
            if each.is_unset is None
            else f"first_value(c.{each.value}) OVER ({by} CASE WHEN c.{each.is_unset} THEN 1 ELSE 0"
            " END, c.place DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
            for each in columns
        ]
        picked = [f"{value} AS {each.value}" for value, each in zip(values, columns, strict=True)]
        shown = [f"l.{each.value} AS {each.name}" for each in columns]
        return f"""SELECT {_listed(shown)} FROM (
SELECT {_listed(picked)}, row_number() OVER ({by} c.place DESC) AS from_end
FROM {lives}) l WHERE l.from_end = 1"""


class MaxByLatest(LatestDialect):
    """For engines that have ``max_by``, which does not take nulls."""

    @abstractmethod
    def boxed(self, value: str) -> str:
        """A value as one that is never null."""

    @abstractmethod
    def unboxed(self, value: str, plain: str) -> str:
        """And back."""

    def left(self, lives: str, life: Sequence[str], columns: Sequence[LatestColumn]) -> str:
        picked = []
        for each in columns:
            found = f"max_by({self.boxed(f'c.{each.value}')}, c.place)"
            if each.is_unset is not None:
                found += f" FILTER (WHERE NOT c.{each.is_unset})"
            picked.append(f"{self.unboxed(found, each.plain)} AS {each.name}")
        return f"SELECT {_listed(picked)} FROM {lives} GROUP BY {_listed(life)}"


def has_latest(target: Target) -> bool:
    """Whether a view can show the rows that a change table leaves: those of a table with a key. An
    array is no key: engines do not compare them alike.
    """
    source = target.source
    if source is None or not source.key:
        return False
    return not any(source.types[index].endswith("[]") for index in source.key)


def latest_schema(target: Target) -> str:
    """Where the view of a change table is. It has the table's name."""
    return f"{target.schema}_latest"


def latest_query(table: str, source: Target, dialect: LatestDialect) -> str:
    """The rows of ``source``, which has a key, out of its change table. ``table`` is its name in
    the engine.
    """
    names = [dialect.quoted(name) for name in source.columns]
    after, before = list[str](), list[str]()
    for index in source.key:
        plain = source.types[index]
        after += dialect.identity(names[index], plain)
        before += dialect.identity(dialect.old_value(source.columns[index], plain), plain)
    keys = [f"k{place}" for place in range(len(after))]
    moved = " OR ".join(f"{old} <> {new}" for old, new in zip(before, after, strict=True))
    arrives = [f"{value} AS {alias}" for value, alias in zip(after, keys, strict=True)]
    arrives += [f"{value} AS b_{alias}" for value, alias in zip(before, keys, strict=True)]
    columns = [
        LatestColumn(name, plain, f"v{place}", None if plain in _FIXED else f"u{place}")
        for place, (name, plain) in enumerate(zip(names, source.types, strict=True))
    ]
    values = [f"{each.name} AS {each.value}" for each in columns]
    values += [
        f"{dialect.is_unset(name)} AS {each.is_unset}"
        for name, each in zip(source.columns, columns, strict=True)
        if each.is_unset is not None
    ]
    roots = [f"r_{alias}" for alias in keys]
    named = f" ({_listed([*roots, 'r_life', *keys, 'life'])})" if dialect.names_recursion else ""
    # One number a position: ordinals are at most 2^32.
    at = f"CAST(_commit_lsn AS {dialect.wide}) * 8589934592 + _ordinal"
    lives = f"""family f JOIN lives e ON {_same("f", "e", [*keys, "life"])} AND NOT e.leaves
JOIN changes c ON c.place = e.place AND {_same("c", "e", keys)}"""
    return f"""WITH RECURSIVE stamped AS (SELECT *, {at} AS penstock_place FROM {table}),
changes AS (
  SELECT {_listed([*arrives, *values])},
    _op, penstock_place AS place, _op = 'update' AND _old IS NOT NULL AND ({moved}) AS moved
  FROM stamped WHERE _op NOT IN ('truncate', 'copy') AND penstock_place > (
    SELECT coalesce(max(penstock_place), -1) FROM stamped WHERE _op IN ('truncate', 'copy'))),
events AS (
  SELECT {_listed(keys)}, place, _op, FALSE AS leaves, moved OR _op IN ('insert', 'read') AS begins
  FROM changes
  UNION ALL
  SELECT {_listed([f"b_{alias} AS {alias}" for alias in keys])}, place, _op, TRUE, FALSE
  FROM changes WHERE moved),
lives AS (
  SELECT {_listed(keys)}, place, _op, leaves, begins, sum(CASE WHEN begins THEN 1 ELSE 0 END)
      OVER (PARTITION BY {_listed(keys)} ORDER BY place
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS life,
    row_number() OVER (PARTITION BY {_listed(keys)} ORDER BY place DESC) AS from_end
  FROM events),
moves AS (
  SELECT {_listed([f"came.{alias} AS {alias}" for alias in keys])}, came.life AS life,
    {_listed([f"went.{alias} AS p_{alias}" for alias in keys])}, went.life AS p_life
  FROM lives came JOIN lives went ON came.place = went.place
  WHERE came.begins AND NOT came.leaves AND went.leaves),
present AS (
  SELECT {_listed(keys)}, life FROM lives
  WHERE from_end = 1 AND NOT leaves AND _op <> 'delete'),
family{named} AS (
  SELECT {_listed([f"{alias} AS r_{alias}" for alias in keys])}, life AS r_life,
    {_listed(keys)}, life FROM present
  UNION ALL
  SELECT {_of("f", roots)}, f.r_life,
    {_listed([f"m.p_{alias}" for alias in keys])}, m.p_life
  FROM family f JOIN moves m ON {_same("f", "m", [*keys, "life"])})
{dialect.left(lives, [*(f"f.{root}" for root in roots), "f.r_life"], columns)}"""


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts)


def _of(relation: str, names: Sequence[str]) -> str:
    return _listed([f"{relation}.{name}" for name in names])


def _same(one: str, other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in names)
