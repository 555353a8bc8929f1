"""Preflight checks of the tables and the publication."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from penstock.source.postgres.catalogue.tables import CatalogueTable
from penstock.source.postgres.preflight.finding import CheckedSource, Finding, Status, listed
from penstock.source.postgres.subscription.subscription import find_subscription


def tables(source: CheckedSource) -> Finding:
    selection, patterns = source.selection, source.config.source.tables.patterns
    include = ", ".join(source.config.source.tables.include)
    skipped = [f"{_name(table)} ({table.why_not_published})" for table in selection.skipped]
    if not selection.published:
        also = f"; these match, but cannot be published: {listed(skipped)}" if skipped else ""
        return Finding(
            "failed",
            f"no table matches source.tables.include ({include}) and not exclude{also}",
            "Correct the patterns. A pattern without a schema means public; upper and lower case "
            "count.",
        )
    detail = f"{len(selection.published)} match: {listed(map(_name, selection.published))}"
    if selection.insert_only:
        detail += (
            f"; inserts and truncates only, no updates and deletes, of "
            f"{listed(map(_name, selection.insert_only))}"
        )
    warnings = []
    named = [table for table in selection.skipped if patterns.names(table.schema, table.name)]
    if named:
        asked = (f"{_name(table)} ({table.why_not_published})" for table in named)
        warnings.append(f"asked for by name, but Postgres cannot publish it: {listed(asked)}")
    if selection.excluded_partitions:
        partitions = listed(map(_name, selection.excluded_partitions))
        warnings.append(
            f"excluded, but followed as partitions of a table that matches: {partitions}"
        )
    if selection.idle_insert_only:
        idle = listed(selection.idle_insert_only)
        warnings.append(f"insert_only has patterns that match none of these tables: {idle}")
    if warnings:
        return Finding(
            "warning",
            "; ".join([detail, *warnings]),
            "Take views, foreign and unlogged tables out of include; name partitions instead of "
            "their root where only some are wanted; in insert_only, name tables that include "
            "matches, and the root instead of its partitions.",
        )
    # Views under a wildcard are no surprise; a table that is left out is.
    left_out = [
        text
        for text, table in zip(skipped, selection.skipped, strict=True)
        if table.kind not in ("v", "m")
    ]
    return Finding("passed", detail + (f"; left out: {listed(left_out)}" if left_out else ""))


def replica_identity(source: CheckedSource) -> Finding:
    selection = source.selection
    without = [table for table in selection.needing_identity if selection.why_unidentified(table)]
    if not without:
        return Finding("passed", "every row can be identified")
    reasons = listed(f"{_name(table)} ({selection.why_unidentified(table)})" for table in without)
    remedy = (
        f"{_identity_remedy(without[0])}; or put "
        "the table into source.tables.insert_only, which follows its inserts and truncates alone; "
        "or into source.tables.exclude."
    )
    if source.subscription is not None and not any(_breaks(source, table) for table in without):
        return Finding(
            "warning",
            "tables are left out, or have been followed so far, whose rows cannot be identified: "
            f"{reasons}",
            remedy,
        )
    return Finding(
        "failed",
        f"rows cannot be identified in {reasons}; once published, every UPDATE and DELETE there "
        "would fail in your application",
        remedy,
    )


def _breaks(source: CheckedSource, table: CatalogueTable) -> bool:
    """Whether updates of a followed table fail. One with a generated identity leaves by itself."""
    is_lacking = bool(table.missing_identity) and not table.generated_identity
    return is_lacking and _is_followed(source, table)


def _identity_remedy(table: CatalogueTable) -> str:
    name = _identifier(table)
    if table.generated_identity:
        return (
            f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT, with a primary key without generated "
            f"columns; or ALTER TABLE {name} REPLICA IDENTITY USING INDEX <unique index without "
            "generated columns>"
        )
    return (
        f"Add a primary key that is not deferrable; or ALTER TABLE {name} REPLICA IDENTITY USING "
        f"INDEX <unique index>; or ALTER TABLE {name} REPLICA IDENTITY FULL (larger WAL)"
    )


def _is_followed(source: CheckedSource, table: CatalogueTable) -> bool:
    """Whether it is in the publication already, by itself or with its root."""
    names = {t.oid: t.table_name for t in source.selection.published}
    published = set() if source.subscription is None else set(source.subscription.tables)
    return any(names.get(oid) in published for oid in (table.oid, *table.ancestors))


def publication(source: CheckedSource) -> Finding:
    # Asked again, not from the cache: here a foreign publication of our name must speak up.
    subscription = find_subscription(source.conn, source.config.name)
    if subscription is None:
        return Finding("passed", "none yet; `penstock init` or `penstock run` creates it")
    published = set(subscription.tables)
    matching = {table.table_name for table in source.selection.published}
    differences = []
    if missing := sorted(matching - published):
        differences.append(f"matching tables that are not in it: {listed(missing)}")
    if extra := sorted(published - matching):
        differences.append(f"tables in it that no longer match: {listed(extra)}")
    inserts = set(subscription.insert_only) & matching
    wanted = {table.table_name for table in source.selection.insert_only} & published
    if whole := sorted(wanted - inserts):
        differences.append(f"tables of insert_only with updates and deletes in it: {listed(whole)}")
    if apart := sorted(inserts - wanted):
        differences.append(f"tables without updates and deletes in it: {listed(apart)}")
    names = " and ".join(subscription.publications)
    detail = f"{names} have" if len(subscription.publications) > 1 else f"{names} has"
    detail += f" {len(published)} tables"
    if differences:
        return Finding(
            "warning",
            "; ".join([detail, *differences]),
            "Nothing, if that is what you want: `penstock run` brings it to what the patterns, "
            "`penstock tables add` and `penstock tables remove` ask for.",
        )
    return Finding("passed", detail)


def publication_privilege(source: CheckedSource) -> Finding:
    if source.subscription is not None:
        return Finding("passed", "not needed: the publication exists")
    database, allowed, role = source.conn.execute(
        "SELECT current_database()::text,"
        " has_database_privilege(current_database(), 'CREATE'), current_user::text"
    ).fetchone() or ("", False, "")
    if allowed:
        return Finding("passed", f"role {role} may create a publication")
    statement = sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
        sql.Identifier(database), sql.Identifier(role)
    )
    return Finding(
        "failed",
        f"role {role} may not create a publication in database {database}",
        f"Run as its owner: {statement.as_string(None)};",
    )


def ownership(source: CheckedSource) -> Finding:
    published = set() if source.subscription is None else set(source.subscription.tables)
    foreign = [
        table
        for table in source.selection.published
        if not table.owned and table.table_name not in published
    ]
    if not foreign:
        return Finding("passed", "the role owns every table that is to be published")
    # While the pipeline exists, it goes on without them.
    status: Status = "failed" if source.subscription is None else "warning"
    role = sql.Identifier(source.value("SELECT current_user::text"))
    grants = [
        sql.SQL("GRANT {} TO {}").format(sql.Identifier(owner), role).as_string(None)
        for owner in sorted({table.owner for table in foreign})
    ]
    return Finding(
        status,
        "only an owner may publish a table; the role does not own "
        + listed(f"{_name(table)} (owner {table.owner})" for table in foreign),
        f"Run as a superuser: {'; '.join(grants)};  or make a role of your own the owner of these "
        "tables, or exclude them.",
    )


def reading(source: CheckedSource) -> Finding:
    copied = source.config.source.copy_rows is not None
    selection = source.selection
    # A copy reads each partition by itself.
    tables = selection.published + (selection.through_root if copied else ())
    unreadable = [table for table in tables if not table.selectable]
    if not unreadable:
        return Finding("passed", "the role may read every table")
    return Finding(
        "failed" if copied and source.subscription is None else "warning",
        f"the role may not read {listed(map(_name, unreadable))}; following changes works without, "
        "copying or comparing rows does not",
        f"Run as the owner: {_grants(unreadable)}"
        + (" Or set source.copy to false." if copied else ""),
    )


def _grants(unreadable: Iterable[CatalogueTable]) -> str:
    schemas = sorted({table.schema for table in unreadable})
    return " ".join(
        sql.SQL(
            "GRANT USAGE ON SCHEMA {0} TO <role>; GRANT SELECT ON ALL TABLES IN SCHEMA {0} TO "
            "<role>;"
        )
        .format(sql.Identifier(schema))
        .as_string(None)
        for schema in schemas
    )


def _name(table: CatalogueTable) -> str:
    return str(table.table_name)


def _identifier(table: CatalogueTable) -> str:
    return sql.Identifier(table.schema, table.name).as_string(None)
