"""Roles of the source that the destination lacks."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from penstock.destination.postgres.sessions.session import Connection, is_passing, said
from penstock.destination.protocols import Unrestored
from penstock.source.schema_dump import DumpedRole


def make_roles(conn: Connection, roles: Sequence[DumpedRole]) -> list[Unrestored]:
    """Make roles that are missing, and what they are members of; those that could not be made.

    Never with a password, and never as superuser, with REPLICATION, BYPASSRLS, CREATEROLE or
    CREATEDB: those rights are the destination's to give. Roles that exist stay as they are.
    """
    there = {name for (name,) in conn.execute("SELECT rolname::text FROM pg_roles")}
    missing = [role for role in roles if role.name not in there]
    statements = [
        (
            f"role {role.name}",
            sql.SQL("CREATE ROLE {} {} {}").format(
                sql.Identifier(role.name),
                sql.SQL("LOGIN" if role.can_login else "NOLOGIN"),
                sql.SQL("INHERIT" if role.inherits else "NOINHERIT"),
            ),
        )
        for role in missing
    ]
    made = {role.name for role in missing}
    statements += [
        (
            f"membership of {role.name} in {group}",
            sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), sql.Identifier(role.name)),
        )
        for role in missing
        for group in role.member_of
        # Built-in roles read and write all there is: not for the source to give.
        if group in made
    ]
    refused = [
        Unrestored(
            f"membership of {role.name} in {group}",
            f"GRANT {group} TO {role.name}",
            "it is given for roles alone that are made here",
        )
        for role in missing
        for group in role.member_of
        if group not in made
    ]
    for title, statement in statements:
        try:
            with conn.transaction():
                conn.execute(statement)
        except psycopg.Error as error:
            if is_passing(error):
                raise
            refused.append(Unrestored(title, statement.as_string(conn), said(error)))
    return refused
