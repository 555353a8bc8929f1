"""How a warehouse writes what all of them are told. Pure: texts in, SQL out."""

# ruff: noqa: S608 (names are quoted, values are quoted literals)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.checked_texts import CheckedTexts, scale_of

KEPT, GIVEN = "penstock_kept", "penstock_given"
"""What statements call a table and the rows that come to it. No column has such a name: an alias
that has a column's name hides the column.
"""

_INTEGERS = ("int2", "int4", "int8", "oid", "xid", "cid")


@dataclass(frozen=True)
class WarehouseFile:
    """A file of the stage: its name, its columns with their types there, and where it is."""

    name: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Staged:
    """A relation that holds the rows of a file, what makes it and what removes it."""

    relation: str
    make: tuple[str, ...]
    drop: tuple[str, ...]


class Dialect(ABC):
    """Names, values, types and the statements that differ. Column types are those that
    ``CheckedTexts.held_as`` names.
    """

    name: str
    """Of the destination."""
    types: CheckedTexts
    sql_types: Mapping[str, str]
    """What ``held_as`` names, as SQL does; and ``op``, a letter."""
    decimal: str
    """The type of decimals."""
    has_transactional_ddl: bool
    """Else a statement that changes a table commits the transaction that it stands in."""
    has_merge: bool
    """MERGE takes conditions on its branches; else rows leave by DELETE and come by INSERT."""
    reads_itself: bool = True
    """A query inside of a transaction sees what the transaction has done; else what was there
    before it.
    """
    replaces_all: bool = True
    """CREATE OR REPLACE takes the place of a table however that one lies."""
    names_recursion: bool = True
    """A query that names itself lists its columns."""

    # -- names and values ------------------------------------------------------------------------

    @abstractmethod
    def quoted(self, name: str) -> str: ...

    @abstractmethod
    def literal(self, text: str) -> str: ...

    def named(self, name: str) -> str:
        """A name as the warehouse keeps it."""
        return name

    def table(self, target: Target) -> str:
        return f"{self.quoted(target.schema)}.{self.quoted(target.name)}"

    def columns(self, target: Target) -> list[str]:
        """Quoted, in the order of the target; never none."""
        return [self.quoted(name) for name in target.columns] or [self.quoted(NO_COLUMNS)]

    def lacks(self, target: Target) -> str | None:
        """Why there can be no such table, for what only this warehouse minds."""
        return None

    def bound_columns(self, target: Target) -> tuple[str, ...]:
        """Those of a table that are neither renamed nor dropped in place."""
        return ()

    # -- types -----------------------------------------------------------------------------------

    def sql_type(self, held: str) -> str:
        if held.startswith("numeric"):
            precision, scale = scale_of(held)
            return f"{self.decimal}({precision},{scale})"
        return self.sql_types[held]

    def column_list(self, target: Target) -> str:
        """Names and types, for a table that is made."""
        types = [self.sql_type(self.types.held_as(plain)) for plain in target.types]
        types = types or [self.sql_type("bool")]
        return ", ".join(
            f"{name} {kind}" for name, kind in zip(self.columns(target), types, strict=True)
        )

    @abstractmethod
    def value(self, held: str, text: str) -> str:
        """An expression for a value that a column gets, of its text in a file."""

    @abstractmethod
    def parsed(self, held: str, text: str) -> str:
        """An expression for a value, of one for its text."""

    def constant(self, held: str, text: str) -> str:
        """A value of a type, written out."""
        return self.parsed(held, self.literal(text))

    def identity(self, held: str, value: str) -> Sequence[str]:
        """Expressions that are equal where values are, as Postgres has it: rows are put together
        by them.
        """
        return (value,)

    def same(self, held: str, one: str, other: str) -> str:
        """Whether two values are equal as Postgres has it; neither is null."""
        return f"{one} = {other}"

    @abstractmethod
    def same_or_null(self, held: str, one: str, other: str) -> str:
        """The same, where two nulls are equal, too."""

    def cast(self, before: str, after: str, column: str) -> str | None:
        """What a column of one held type is as another, for changes that Postgres makes without
        writing rows anew; None where it does not.
        """
        integers = before in _INTEGERS and after in _INTEGERS
        decimals = [held.startswith("numeric") for held in (before, after)]
        stamps = {before, after} == {"timestamp", "timestamptz"}
        if integers or stamps or all(decimals) or (decimals[0] and after == "text"):
            return f"CAST({column} AS {self.sql_type(after)})"
        return None

    # -- documents -------------------------------------------------------------------------------

    @abstractmethod
    def document_text(self, document: str) -> str:
        """A document as text, without blanks between its parts."""

    @abstractmethod
    def member(self, document: str, name: str) -> str:
        """The text of a value that a document has under a name."""

    def holds(self, text: str, part: str) -> str:
        """Whether a text has another one in it."""
        return f"POSITION({part} IN {text}) > 0"

    # -- statements ------------------------------------------------------------------------------

    def create_schema(self, schema: str) -> str:
        return f"CREATE SCHEMA IF NOT EXISTS {self.quoted(schema)}"

    @abstractmethod
    def create_table(self, target: Target, name: str) -> str:
        """``name`` is quoted: that of the target, or of what takes its place."""

    @abstractmethod
    def rename_table(self, schema: str, before: str, after: str) -> str: ...

    def drop_table(self, name: str) -> str:
        return f"DROP TABLE IF EXISTS {name}"

    def replace_table(self, target: Target, query: str, mark: str) -> str:
        """Put a query's rows in place of a table, if there is one, all at once and with a mark. For
        those whose statements commit.
        """
        raise NotImplementedError

    def mark_query(self, target: Target) -> str:
        """Which mark a table has."""
        raise NotImplementedError

    def staging_table(self, target: Target) -> tuple[str, ...]:
        """What makes a place for staged rows that stays, where none can be made inside of a
        transaction.
        """
        return ()

    def drop_staging(self, target: Target) -> tuple[str, ...]:
        """What removes it."""
        return ()

    def has_bit(self, words: str, bit: int) -> str:
        """Whether a bit of a number is set."""
        return f"({words} & {bit}) <> 0"

    def widened(self, table: str, column: str, before: str, after: str) -> str | None:
        """A statement that retypes a column in place; None where that cannot be."""
        return None

    @abstractmethod
    def tables_query(self) -> str:
        """Schema, table, column and type of all columns that are there, as ``spelled`` has them."""

    def table_query(self, schema: str, name: str) -> str:
        """A row where there is such a table."""
        return (
            "SELECT 1 FROM information_schema.tables WHERE table_schema ="
            f" {self.literal(self.named(schema))} AND table_name = {self.literal(self.named(name))}"
        )

    @abstractmethod
    def spelled(self, held: str) -> str:
        """A type as the catalogue shows it."""

    @abstractmethod
    def fence(self, ledger: str) -> Sequence[str]:
        """What keeps other drivers from the ledger's table until the transaction ends."""

    def delete_all(self, table: str) -> str:
        """Remove all rows, in a way that does not commit what stands before it."""
        return f"DELETE FROM {table}"

    def bounds(self, target: Target, rows: pa.Table) -> str:
        """A condition behind that of a MERGE which spares the warehouse to look at all rows of the
        table ``t``, by the keys before that staged rows have.
        """
        return ""

    def delete(self, target: Target, relation: str, where: str) -> str:
        """Remove the rows that are like one of a relation, by a condition on both."""
        return f"DELETE FROM {self.table(target)} USING {relation} WHERE {where}"

    @abstractmethod
    def in_delete(self, target: Target) -> str:
        """What the table is called in that condition."""

    # -- files -----------------------------------------------------------------------------------

    @abstractmethod
    def staged(self, target: Target, file: WarehouseFile) -> Staged: ...

    def load_file(self, target: Target, file: WarehouseFile) -> str | None:
        """A statement that adds the rows of a file to a table, which has the same columns; None
        where they have to be staged first.
        """
        return None
