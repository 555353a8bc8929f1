"""The source's whole schema as it was at one point, as drivers pass it to a destination."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class DumpOptions:
    """What a destination wants of the source's schema.

    ``programs`` is the folder with pg_dump and pg_restore; None: they are looked for. ``roles``
    asks for the roles, too. ``compare`` is after how many seconds it wants to see it again, 0 for
    never.
    """

    programs: str | None = None
    roles: bool = False
    compare: float = 0.0


@dataclass(frozen=True)
class DumpedIndex:
    """An index of the source. ``table`` is the table that it is on, or the root where that is a
    partition; ``constraint`` the oid of the constraint that it belongs to, or 0. ``columns`` are
    the key's, empty where rows cannot be found by it. ``on_partition``: it is not the table's own.
    """

    oid: int
    constraint: int
    table: int
    schema: str
    name: str
    columns: tuple[str, ...]
    is_primary: bool
    on_partition: bool = False


@dataclass(frozen=True)
class DumpedRole:
    """A role that is no superuser. ``member_of`` are the roles that it belongs to."""

    name: str
    can_login: bool
    inherits: bool
    member_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class DumpFacts:
    """What an archive does not tell of itself. ``foreign_keys`` are (schema, table, name) by oid;
    ``populated`` the materialized views that have rows; ``uncopied`` what no copy brings.
    """

    indexes: tuple[DumpedIndex, ...] = ()
    foreign_keys: Mapping[int, tuple[str, str, str]] = field(default_factory=dict)
    populated: tuple[tuple[str, str], ...] = ()
    roles: tuple[DumpedRole, ...] = ()
    uncopied: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            indexes=tuple(
                DumpedIndex(**{**each, "columns": tuple(each["columns"])})
                for each in value["indexes"]
            ),
            foreign_keys={int(oid): tuple(name) for oid, name in value["foreign_keys"].items()},
            populated=tuple((schema, name) for schema, name in value["populated"]),
            roles=tuple(
                DumpedRole(**{**each, "member_of": tuple(each["member_of"])})
                for each in value["roles"]
            ),
            uncopied=tuple(value["uncopied"]),
        )


@dataclass(frozen=True)
class SchemaDump:
    """``archive`` is what pg_dump wrote (custom format, no rows) under the snapshot of ``lsn``."""

    archive: bytes
    lsn: int
    facts: DumpFacts


@dataclass(frozen=True)
class SequenceValue:
    """Where a sequence stands."""

    schema: str
    name: str
    last_value: int
    is_called: bool
