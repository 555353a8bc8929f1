"""A user's own word on what identifies a row and which version an event has: docs/identity.md.

Both are found by name through entry points, so that they come from other packages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import AfterValidator

from penstock.config import entry_point
from penstock.model.errors import DestinationError
from penstock.model.table_definition import TableDefinition
from penstock.model.table_schema import TableSchema
from penstock.transform.identity import identity_of

if TYPE_CHECKING:
    import pyarrow as pa

IDENTITY_GROUP = "penstock.identity_finders"
VERSION_GROUP = "penstock.version_finders"


class IdentityFinder(Protocol):
    """Says which columns identify the rows of a table. Asked once for each of its definitions."""

    def __call__(self, table: TableDefinition, /) -> Sequence[str] | None:
        """Names of columns, in the key's order; None leaves it to Penstock."""


class VersionFinder(Protocol):
    """Gives events of rows a version. Works on executors, where its package has to be, too."""

    def __call__(self, table: TableSchema, rows: pa.RecordBatch, /) -> pa.Array:
        """One number or text a row, null where it has none.

        ``rows`` has a column of Postgres's texts for each column of the table: the row after each
        change, of a delete what is known of the row. Null where a value is null or was not sent.
        """


def identity_finder(name: str) -> IdentityFinder:
    found: IdentityFinder = entry_point.load(
        IDENTITY_GROUP, name, "destination.identity", "identity finder"
    )
    return found


def version_finder(name: str) -> VersionFinder:
    found: VersionFinder = entry_point.load(
        VERSION_GROUP, name, "destination.version", "version finder"
    )
    return found


def _known_identity(name: str) -> str:
    identity_finder(name)
    return name


def _known_version(name: str) -> str:
    version_finder(name)
    return name


IdentityName = Annotated[str, AfterValidator(_known_identity)]
VersionName = Annotated[str, AfterValidator(_known_version)]


def identity_by(name: str | None, table: TableDefinition) -> tuple[str, ...]:
    """The columns that identify rows of the table, by the finder of this name where there is one.

    Raises DestinationError where that names what the stream does not bring.
    """
    found = None if name is None else identity_finder(name)(table)
    if found is None:
        return identity_of(table)
    delivered = {column.name for column in table.columns if column.is_delivered}
    for column in found:
        if column not in delivered:
            raise DestinationError(
                f"destination.identity: the finder {name!r} names column {column!r} for table "
                f"{table.qualified_name}, whose events have no such column",
                remedy="let it return names of columns that are published, or None",
            )
    return tuple(found)
