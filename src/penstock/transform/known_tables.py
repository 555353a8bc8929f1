"""Tables as they were when rules were last asked about them, for the executors.

Rules go by names. A table or column whose name changes leaves its rule, and where no event trigger
tells of that, the rows behind it are the first that know. So executors compare each table with
what the driver knew of it, and what may leave as it is comes to the driver as TableChanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.model.errors import TableChanged
from penstock.model.table_definition import TableDefinition
from penstock.model.table_schema import TableSchema

Versions = Sequence[tuple[int, TableDefinition]]
"""Definitions of a table, oldest first, each with the commit LSN from which on it holds."""


@dataclass(frozen=True)
class KnownTable:
    """A table from commit LSN ``lsn`` on: its columns in their order, and those whose values
    change.
    """

    lsn: int
    columns: tuple[str, ...]
    covered: frozenset[str]


def known_versions(
    versions: Versions, covered: Callable[[TableDefinition], Collection[str]]
) -> tuple[KnownTable, ...]:
    """What executors need to know of a table; nothing where no rule ever changed it."""
    found: list[KnownTable] = []
    for lsn, table in versions:
        names = tuple(column.name for column in table.columns)
        new = KnownTable(lsn, names, frozenset(covered(table)))
        if not found or (found[-1].columns, found[-1].covered) != (new.columns, new.covered):
            found.append(new)
    return tuple(found) if any(each.covered for each in found) else ()


def expect_covered(
    table: TableSchema, bare: Collection[str], known: Sequence[KnownTable], commit_lsn: int
) -> None:
    """Compare a table, as rows that were committed at ``commit_lsn`` announce it, with what it was.
    ``bare`` are its columns that leave as they are now.

    Raises TableChanged where one of them may be one that a rule covered.
    """
    if not known or not bare:
        return
    # In the transaction that changes a table there are rows before the change and behind it.
    before = [each for each in known if each.lsn < commit_lsn] or list(known[:1])
    asked = [before[-1], *(each for each in known if each.lsn == commit_lsn)]
    names = [column.name for column in table.columns]
    lost = [_lost(names, bare, each) for each in asked]
    if all(lost):
        raise TableChanged(
            f"table {table.qualified_name} has changed at the source, and nothing told of it: no "
            f"rule changes column {', '.join(lost[0])}, which may hold values that one covered",
            remedy="give its columns rules by their names of now, in the part transform of the "
            "pipeline file, start `penstock run` again, and run `penstock tables retry` for "
            f"{table.qualified_name}",
            table=table.oid,
            commit_lsn=commit_lsn,
        )


def _lost(names: Sequence[str], bare: Collection[str], known: KnownTable) -> list[str]:
    """The columns that leave as they are, and may hold what a rule covered."""
    if not known.covered:
        return []
    # One that came lately stands behind all others, and those keep their order.
    places = {name: place for place, name in enumerate(known.columns)}
    found = [name for name in names if name in known.covered and name in bare]
    gone = not known.covered.issubset(names)
    last = max((place for place, name in enumerate(names) if name in places), default=-1)
    found += [
        name
        for place, name in enumerate(names)
        if name in bare and name not in places and (gone or place < last)
    ]
    kept = [places[name] for name in names if name in places]
    if kept != sorted(kept):
        found += [name for name in names if name in bare and name in places]
    return _once(found)


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
