"""Views that show several tables as one: partitions that the source keeps as tables of their own.
Pure.
"""

# ruff: noqa: S608 (names are quoted by the dialect)

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.destination.families.target import Target
from penstock.destination.redshift.dialect import RedshiftDialect
from penstock.destination.redshift.options import FoldedTables


def view_of(dialect: RedshiftDialect, folded: FoldedTables) -> str:
    """The view's name, quoted."""
    schema, _, name = folded.into.partition(".")
    return f"{dialect.quoted(schema)}.{dialect.quoted(name)}"


def members_of(folded: FoldedTables, targets: Iterable[Target]) -> list[Target]:
    """The tables that a view shows, in the order of their names."""
    found = [target for target in targets if folded.fits(target.schema, target.name)]
    return sorted(found, key=lambda target: (target.schema, target.name))


def make_view(dialect: RedshiftDialect, folded: FoldedTables, members: Sequence[Target]) -> str:
    """The statement that makes a view of tables: the columns of all of them, by their names. What
    a table does not have is null; what has several types is shown as text.
    """
    held = [_held(dialect, target) for target in members]
    types: dict[str, set[str]] = {}
    for columns in held:
        for name, kind in columns.items():
            types.setdefault(name, set()).add(kind)
    selects = [
        f"SELECT {', '.join(_shown(dialect, columns, name, types[name]) for name in types)}"
        f" FROM {dialect.table(target)}"
        for target, columns in zip(members, held, strict=True)
    ]
    return f"CREATE VIEW {view_of(dialect, folded)} AS {' UNION ALL '.join(selects)}"


def _held(dialect: RedshiftDialect, target: Target) -> dict[str, str]:
    """Columns by their quoted names, and what holds them."""
    types = [dialect.types.held_as(plain) for plain in target.types] or ["bool"]
    return dict(zip(dialect.columns(target), types, strict=True))


def _shown(dialect: RedshiftDialect, columns: dict[str, str], name: str, types: set[str]) -> str:
    common = next(iter(types)) if len(types) == 1 else "text"
    if name not in columns:
        value = f"CAST(NULL AS {dialect.sql_type(common)})"
    elif columns[name] == common:
        return name
    else:
        value = dialect.as_text(columns[name], name)
    return f"{value} AS {name}"
