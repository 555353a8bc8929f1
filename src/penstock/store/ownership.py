"""Whose the store's tables are: whoever can write them decides what the pipeline does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from penstock.model.errors import StoreError

_OWNERS = """
SELECT DISTINCT o.rolname::text FROM pg_namespace n
  LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = ANY (%s)
  JOIN pg_roles o ON o.oid IN (n.nspowner, c.relowner)
 WHERE n.nspname = 'penstock' AND NOT o.rolsuper
   AND NOT pg_has_role(current_user, o.oid, 'MEMBER')
"""
# Default privileges give rights to tables that are made later, and nobody sees it. Reading is no
# harm. Roles that this one is a member of are its own.
_WRITERS = """
SELECT DISTINCT c.relname::text,
       CASE g.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(g.grantee)::text END
  FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS g
  LEFT JOIN pg_roles r ON r.oid = g.grantee
 WHERE c.relnamespace = to_regnamespace('penstock') AND c.relname = ANY (%s)
   AND g.privilege_type <> 'SELECT' AND g.grantee <> c.relowner AND r.rolsuper IS NOT TRUE
   AND NOT (r.oid IS NOT NULL AND pg_has_role(current_user, r.oid, 'MEMBER'))
 ORDER BY 1, 2
"""


def require_own(conn: psycopg.Connection[Any], tables: Sequence[str]) -> None:
    """Raise StoreError where the schema or one of the tables belongs to a role that is neither this
    one's own nor a superuser, or where such a role may write to a table.
    """
    names = [*tables]
    owners = [name for (name,) in conn.execute(_OWNERS, [names])]
    if owners:
        raise StoreError(
            f"The schema penstock, or a table in it, belongs to {', '.join(owners)}: that role "
            "could write what this pipeline believes of its tables.",
            remedy="Let it be the pipeline's own: ALTER SCHEMA penstock OWNER TO the pipeline's "
            "role, and its tables as well; or give another database as store.url.",
        )
    writers = conn.execute(_WRITERS, [names]).fetchall()
    if writers:
        roles = sorted({role or "PUBLIC" for _, role in writers})
        raise StoreError(
            f"The store's tables ({', '.join(sorted({table for table, _ in writers}))}) may be "
            f"written by {', '.join(roles)}, who could decide what this pipeline does.",
            remedy="Run as their owner: REVOKE ALL ON ALL TABLES IN SCHEMA penstock FROM "
            f"{', '.join(roles)}; look what gave those rights (\\ddp in psql), and what those "
            "roles did meanwhile.",
        )


def revoke_writing(conn: psycopg.Connection[Any], tables: Sequence[str]) -> None:
    """Take from others what default privileges gave them on tables that were made just now."""
    for table, role in conn.execute(_WRITERS, [[*tables]]).fetchall():
        conn.execute(
            sql.SQL("REVOKE ALL ON {} FROM {}").format(
                sql.Identifier("penstock", table),
                sql.SQL("PUBLIC") if role is None else sql.Identifier(role),
            )
        )
