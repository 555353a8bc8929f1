"""The two publications of a pipeline: made, found, changed and dropped together.

The COMMENT of the first one holds a uuid and, once the slot exists, "start", the slot's point.
Tables of which only inserts and truncates are followed are in a second publication, since what is
published is a property of a publication. It is made at once, also without tables: before Postgres
18, a slot cannot be read with a publication that is younger than what is read. "inserts" in the
first one's comment says that there is a second; that one's own comment says whose it is, because
its name could be that of the first publication of another pipeline. Such a pipeline does without a
second one, and has no tables of that kind.
"""

from __future__ import annotations

import json
import uuid as uuids
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.model.errors import SourceError
from penstock.model.lsn import format_lsn, parse_lsn
from penstock.model.publication_state import (
    PublicationOptions,
    PublicationState,
    PublishedTable,
)
from penstock.model.table_name import TableName

_COMMENT_VERSION = 1
_ALL = "insert, update, delete, truncate"
_INSERTS = "insert, truncate"


@dataclass(frozen=True)
class Publications:
    """What the comments and the catalogue say. ``start_lsn`` is None before the slot exists.

    ``tables`` are those of all publications, ``insert_only`` those of the second.
    """

    names: tuple[str, ...]
    uuid: str
    start_lsn: int | None
    tables: tuple[TableName, ...]
    insert_only: tuple[TableName, ...]


@dataclass(frozen=True)
class Membership:
    """Which publication each table is in, and what it is called, both by oid."""

    names: tuple[str, ...]
    homes: Mapping[int, str]
    tables: Mapping[int, TableName]
    state: PublicationState

    def narrowed(self) -> dict[str, str]:
        """Publications that do not publish what they were made for, each with what they do."""
        return {
            name: f"publication {name} published only: {options.publish or 'nothing'}"
            if options.via_root
            else f"publication {name} did not publish partitions as their root"
            for name, options in self.state.publications.items()
            if (options.publish, options.via_root) != (published_by(name, self.names), True)
        }

    def limited(self) -> dict[int, str]:
        """Tables that are published only in part, each with the limits."""
        return {
            oid: f"publication {table.publication} had {table.limits} for it"
            for oid, table in self.state.tables.items()
            if table.limits
        }


# What a table is limited by is JSON: Postgres 14 knows no such limits.
_MEMBERSHIP = """
SELECT p.pubname::text, coalesce(obj_description(p.oid, 'pg_publication'), ''),
       c.oid::bigint, n.nspname::text, c.relname::text,
       p.oid || '/' || p.xmin,
       concat_ws(', ', CASE WHEN p.pubinsert THEN 'insert' END,
                 CASE WHEN p.pubupdate THEN 'update' END, CASE WHEN p.pubdelete THEN 'delete' END,
                 CASE WHEN p.pubtruncate THEN 'truncate' END),
       p.pubviaroot, r.oid::bigint,
       concat_ws(' and ', CASE WHEN to_jsonb(r) ->> 'prattrs' IS NOT NULL THEN 'a column list' END,
                 CASE WHEN to_jsonb(r) ->> 'prqual' IS NOT NULL THEN 'a row filter' END)
  FROM pg_publication p
  LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid
  LEFT JOIN pg_class c ON c.oid = r.prrelid
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE p.pubname = ANY(%s)
"""


def publication_name(name: str) -> str:
    return f"penstock_{name}"


def inserts_publication_name(name: str) -> str:
    return f"penstock_{name}_inserts"


def create_publications(
    conn: psycopg.Connection[Any],
    name: str,
    uuid: str,
    tables: Sequence[TableName],
    insert_only: Sequence[TableName],
) -> Publications:
    """Create the publications of the pipeline called ``name``. Call it in a transaction."""
    names = [publication_name(name)]
    # Without tables, too: what belongs to a pipeline is found by this one's name and comment.
    apart = set(insert_only)
    followed = [table for table in tables if table not in apart]
    _create(conn, names[0], followed, _ALL)
    second = inserts_publication_name(name)
    is_free = _read_comment(conn, second) is None
    if insert_only and not is_free:
        raise SourceError(
            f"The source has a publication {second} that is not of pipeline {name}, which "
            "needs this name for the tables of source.tables.insert_only.",
            remedy=_other_name(second),
        )
    if is_free:
        names.append(second)
        _create(conn, second, insert_only, _INSERTS)
        _comment(conn, second, {**_remark(uuid), "inserts_of": name})
    made = Publications(tuple(names), uuid, None, tuple(tables), tuple(insert_only))
    record_start(conn, made, None)
    return made


def record_start(
    conn: psycopg.Connection[Any], publications: Publications, start: int | None
) -> None:
    """Write the slot's point into the first one's comment; with None that there is none yet."""
    remark = _remark(publications.uuid)
    if len(publications.names) > 1:
        remark["inserts"] = True
    if start is not None:
        remark["start"] = format_lsn(start)
    _comment(conn, publications.names[0], remark)


def read_publications(conn: psycopg.Connection[Any], name: str) -> Publications | None:
    """The pipeline's publications; None without any.

    Raises SourceError where the first is somebody else's, or the second is not what was made with
    it.
    """
    remark = _first_remark(conn, name)
    if remark is None:
        return None
    names, start = [publication_name(name)], remark.get("start")
    if "inserts" in remark:
        names.append(inserts_publication_name(name))
        if _inserts_uuid(conn, name) != remark["uuid"]:
            raise _second_is_gone(*names)
    return Publications(
        tuple(names),
        remark["uuid"],
        None if start is None else parse_lsn(start),
        tables=_tables(conn, names),
        insert_only=_tables(conn, names[1:]),
    )


def read_membership(conn: psycopg.Connection[Any], name: str) -> Membership:
    """What the pipeline's publications hold, by one query.

    Raises SourceError where they are gone, or are not what was made.
    """
    first, second = publication_name(name), inserts_publication_name(name)
    rows = conn.execute(_MEMBERSHIP, [[first, second]]).fetchall()
    comments: dict[str, str] = {row[0]: row[1] for row in rows}
    if first not in comments:
        raise SourceError(
            f"The publication {first} of pipeline {name} is gone: changes may have been missed "
            "since.",
            remedy="`penstock destroy` and `penstock run` start anew.",
        )
    remark = _parse_remark(name, comments[first])
    names = [first]
    if "inserts" in remark:
        if _parse_inserts_uuid(name, comments.get(second)) != remark["uuid"]:
            raise _second_is_gone(first, second)
        names.append(second)
    homes: dict[int, str] = {}
    tables: dict[int, TableName] = {}
    publications: dict[str, PublicationOptions] = {}
    entries: dict[int, PublishedTable] = {}
    for publication, _text, oid, schema, table, *options, entry, limits in rows:
        if publication not in names:
            continue
        publications[publication] = PublicationOptions(*options)
        if oid is not None:
            homes[oid] = publication
            tables[oid] = TableName(schema, table)
            entries[oid] = PublishedTable(publication, entry, limits)
    return Membership(tuple(names), homes, tables, PublicationState(publications, entries))


def published_by(publication: str, names: Sequence[str]) -> str:
    """What the first, or the second, of a pipeline's publications is made to publish."""
    return _ALL if publication == names[0] else _INSERTS


def alter_publication(
    conn: psycopg.Connection[Any],
    publication: str,
    *,
    add: Sequence[TableName] = (),
    drop: Sequence[TableName] = (),
) -> None:
    """Change its tables: one statement for all that leave, one for all that come."""
    for tables, statement in (
        (drop, "ALTER PUBLICATION {} DROP TABLE {}"),
        (add, "ALTER PUBLICATION {} ADD TABLE {}"),
    ):
        if tables:
            conn.execute(sql.SQL(statement).format(sql.Identifier(publication), _listed(tables)))


def widen_publication(conn: psycopg.Connection[Any], publication: str, what: str) -> None:
    """Let it publish again what it was made for."""
    conn.execute(
        sql.SQL(
            "ALTER PUBLICATION {} SET (publish = {}, publish_via_partition_root = true)"
        ).format(sql.Identifier(publication), sql.Literal(what))
    )


def own_publications(conn: psycopg.Connection[Any], name: str) -> dict[str, str]:
    """Those that belong to the pipeline, complete or not, each with its uuid.

    Raises SourceError where the first is somebody else's.
    """
    remark = _first_remark(conn, name)
    found = {} if remark is None else {publication_name(name): str(remark["uuid"])}
    if uuid := _inserts_uuid(conn, name):
        found[inserts_publication_name(name)] = uuid
    return found


def drop_publications(conn: psycopg.Connection[Any], names: Iterable[str]) -> None:
    """Drop them in one statement; one that is gone meanwhile is as good as dropped."""
    listed = sql.SQL(", ").join(map(sql.Identifier, names))
    conn.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(listed))


def _create(
    conn: psycopg.Connection[Any], publication: str, tables: Sequence[TableName], what: str
) -> None:
    conn.execute(
        sql.SQL(
            "CREATE PUBLICATION {} {} WITH (publish = {}, publish_via_partition_root = true)"
        ).format(
            sql.Identifier(publication),
            sql.SQL("FOR TABLE {}").format(_listed(tables)) if tables else sql.SQL(""),
            sql.Literal(what),
        )
    )


def _listed(tables: Sequence[TableName]) -> sql.Composed:
    # ONLY: a table that inherits from this one is matched by its own name.
    return sql.SQL(", ").join(sql.SQL("ONLY {}").format(sql.Identifier(*table)) for table in tables)


def _remark(uuid: str) -> dict[str, Any]:
    return {"penstock": _COMMENT_VERSION, "uuid": uuid}


def _comment(conn: psycopg.Connection[Any], publication: str, remark: dict[str, Any]) -> None:
    conn.execute(
        sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(
            sql.Identifier(publication), sql.Literal(json.dumps(remark))
        )
    )


def _read_comment(conn: psycopg.Connection[Any], publication: str) -> str | None:
    """The publication's comment, empty without one; None where there is no such publication."""
    row = conn.execute(
        "SELECT coalesce(obj_description(oid, 'pg_publication'), '')"
        "  FROM pg_publication WHERE pubname = %s",
        [publication],
    ).fetchone()
    return None if row is None else str(row[0])


def _first_remark(conn: psycopg.Connection[Any], name: str) -> dict[str, Any] | None:
    """What the comment of the pipeline's first publication holds; None without one."""
    comment = _read_comment(conn, publication_name(name))
    return None if comment is None else _parse_remark(name, comment)


def _parse_remark(name: str, comment: str) -> dict[str, Any]:
    try:
        remark: dict[str, Any] = json.loads(comment)
        if remark["penstock"] != _COMMENT_VERSION or "inserts_of" in remark:
            raise ValueError
        if "start" in remark:
            parse_lsn(remark["start"])
        return {**remark, "uuid": str(uuids.UUID(remark["uuid"]))}
    except (ValueError, KeyError, TypeError, AttributeError):
        publication = publication_name(name)
        raise SourceError(
            f"The source has a publication {publication} that this version of Penstock did not "
            f"make for pipeline {name}: its comment is {comment!r}.",
            remedy=_other_name(publication),
        ) from None


def _inserts_uuid(conn: psycopg.Connection[Any], name: str) -> str | None:
    """The uuid in the comment of the pipeline's second publication; None where it has none."""
    return _parse_inserts_uuid(name, _read_comment(conn, inserts_publication_name(name)))


def _parse_inserts_uuid(name: str, comment: str | None) -> str | None:
    try:
        remark = json.loads(comment or "")
        return str(remark["uuid"]) if remark["inserts_of"] == name else None
    except (ValueError, KeyError, TypeError):
        return None


def _second_is_gone(first: str, second: str) -> SourceError:
    return SourceError(
        f"The publication {second}, made together with {first}, is gone or is another one now: "
        "changes of its tables may have been missed since.",
        remedy="`penstock destroy` and `penstock run` start anew.",
    )


def _other_name(publication: str) -> str:
    return (
        "Give the pipeline another name; or, if nobody needs that publication: "
        f'DROP PUBLICATION "{publication}".'
    )


def _tables(conn: psycopg.Connection[Any], publications: Sequence[str]) -> tuple[TableName, ...]:
    rows = conn.execute(
        "SELECT n.nspname::text, c.relname::text"
        "  FROM pg_publication_rel r"
        "  JOIN pg_publication p ON p.oid = r.prpubid"
        "  JOIN pg_class c ON c.oid = r.prrelid"
        "  JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE p.pubname = ANY(%s) ORDER BY 1, 2",
        [list(publications)],
    ).fetchall()
    return tuple(TableName(*row) for row in rows)
