"""The rows that a change table leaves, as one query over it. Pure.

A row's changes form a *life*: it begins where the row is inserted or read under a key, or comes to
it from another one, and ends where it is deleted or leaves the key. A column that a change came
without keeps what it was, so a life that begins with a move goes on from the one that was left.
"""

# ruff: noqa: S608 (names are quoted)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.destination.families.target import Target


@dataclass(frozen=True)
class LatestDialect:
    """How an engine writes what engines do not write alike.

    ``quoted``: a name. ``old_value(column, plain)``: a column of the old image in ``_old``, in its
    type. ``has(column)``: whether ``_unset`` names it. ``boxed``, ``unboxed``: a value as one that
    is never null, and back. ``wide``: an integer of 38 digits.
    """

    quoted: Callable[[str], str]
    old_value: Callable[[str, str], str]
    is_unset: Callable[[str], str]
    boxed: Callable[[str], str]
    unboxed: Callable[[str], str]
    wide: str


def latest_query(table: str, source: Target, dialect: LatestDialect) -> str:
    """The rows of ``source``, which has a key, out of its change table. ``table`` is its name in
    the engine.
    """
    names = [dialect.quoted(name) for name in source.columns]
    key = [(names[index], f"k{place}") for place, index in enumerate(source.key)]
    keys = [alias for _, alias in key]
    roots = [f"r_{alias}" for alias in keys]
    old = [dialect.old_value(source.columns[index], source.types[index]) for index in source.key]
    after = [f"{name} AS {alias}" for name, alias in key]
    before = [f"{value} AS b_{alias}" for value, alias in zip(old, keys, strict=True)]
    moved = " OR ".join(
        f"{value} IS DISTINCT FROM {name}" for value, (name, _) in zip(old, key, strict=True)
    )
    values = [f"{name} AS v{place}" for place, name in enumerate(names)]
    unset = [f"{dialect.is_unset(name)} AS u{place}" for place, name in enumerate(source.columns)]
    picked = [
        _last_sent(dialect, f"v{place}", f"u{place}", name) for place, name in enumerate(names)
    ]
    # One number a position: ordinals are at most 2^32.
    at = f"CAST(_commit_lsn AS {dialect.wide}) * 8589934592 + _ordinal"
    return f"""WITH RECURSIVE stamped AS (SELECT *, {at} AS penstock_place FROM {table}),
changes AS (
  SELECT {_listed([*after, *before])}, {_listed([*values, *unset])},
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
  SELECT *, sum(CASE WHEN begins THEN 1 ELSE 0 END)
      OVER (PARTITION BY {_listed(keys)} ORDER BY place) AS life,
    row_number() OVER (PARTITION BY {_listed(keys)} ORDER BY place DESC) AS from_end
  FROM events),
moves AS (
  SELECT {_of("came", keys)}, came.life AS life,
    {_listed([f"went.{alias} AS p_{alias}" for alias in keys])}, went.life AS p_life
  FROM lives came JOIN lives went ON came.place = went.place
  WHERE came.begins AND NOT came.leaves AND went.leaves),
present AS (
  SELECT {_listed(keys)}, life FROM lives
  WHERE from_end = 1 AND NOT leaves AND _op <> 'delete'),
family AS (
  SELECT {_listed([f"{alias} AS r_{alias}" for alias in keys])}, life AS r_life,
    {_listed(keys)}, life FROM present
  UNION ALL
  SELECT {_of("f", roots)}, f.r_life,
    {_listed([f"m.p_{alias}" for alias in keys])}, m.p_life
  FROM family f JOIN moves m ON {_same("f", "m", [*keys, "life"])})
SELECT {_listed(picked)}
FROM family f JOIN lives e ON {_same("f", "e", [*keys, "life"])} AND NOT e.leaves
JOIN changes c ON c.place = e.place AND {_same("c", "e", keys)}
GROUP BY {_of("f", roots)}, f.r_life"""


def _last_sent(dialect: LatestDialect, value: str, unset: str, name: str) -> str:
    found = f"max_by({dialect.boxed(f'c.{value}')}, c.place) FILTER (WHERE NOT c.{unset})"
    return f"{dialect.unboxed(found)} AS {name}"


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts)


def _of(relation: str, names: Sequence[str]) -> str:
    return _listed([f"{relation}.{name}" for name in names])


def _same(one: str, other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in names)
