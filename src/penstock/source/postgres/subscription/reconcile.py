"""Brings a pipeline's publications to what its patterns, and the rules of a person, ask for.

What pgoutput sends is decided by the catalogue as of each change. So a table that is added here has
to be copied under a snapshot that is taken after this is committed, and only changes from that
snapshot's point on count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg import errors

from penstock.config.models import PipelineConfig
from penstock.config.table_patterns import Rules
from penstock.model.publication_state import PublicationState
from penstock.model.table_name import TableName
from penstock.source.contract import Reconciled
from penstock.source.postgres.catalogue.tables import read_tables
from penstock.source.postgres.pipeline_lock import LOCK_SECONDS, PipelineLock
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.subscription.publications import (
    Membership,
    alter_publication,
    inserts_publication_name,
    publication_name,
    published_by,
    read_membership,
    widen_publication,
)
from penstock.source.postgres.subscription.table_selection import (
    select_tables,
    why_not_added,
    why_withdrawn,
)

LOCK_WAIT_SECONDS = 5.0
"""How long adding tables waits for locks that others hold; then it is left for the next time."""

# Of several destinations any may be at it: with all waits for tables, not longer than this.
_PATIENCE_SECONDS = 30.0

# All of them pass: somebody has a table locked, has dropped it, or was quicker.
_NOT_NOW = (
    errors.DeadlockDetected,
    errors.DuplicateObject,
    errors.LockNotAvailable,
    errors.UndefinedObject,
    errors.UndefinedTable,
)


@dataclass(frozen=True)
class _Plan:
    """The publications as they are, and as they should be: a publication for each oid."""

    before: Membership
    after: Mapping[int, str]
    names: Mapping[int, TableName]
    skipped: Mapping[TableName, str]
    limited: Mapping[int, str]
    """Published tables of which not all is published, with the reason: they leave and come back."""
    withdrawn: Mapping[int, str] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        return self.outcome().has_changed or bool(self.limited or self.before.narrowed())

    def outcome(self, state: PublicationState | None = None) -> Reconciled:
        """``state`` is what it has come to, where something was changed."""
        before, after = self.before.homes, self.after
        added, removed = after.keys() - before.keys(), before.keys() - after.keys()
        moved = {oid for oid in after.keys() & before.keys() if after[oid] != before[oid]}
        return Reconciled(
            self._named(after),
            self._named(added),
            self._named(removed),
            self._named(moved),
            self.skipped,
            self.withdrawn,
            self._narrowed(),
            state or self.before.state,
        )

    def _narrowed(self) -> dict[int, str]:
        publications = self.before.narrowed()
        homes = self.before.homes.items()
        found = {oid: publications[home] for oid, home in homes if home in publications}
        return {**self.before.limited(), **found}

    def _named(self, oids: Iterable[int]) -> dict[int, TableName]:
        return {oid: self.names[oid] for oid in oids}

    def without(self, reasons: Mapping[int, str]) -> _Plan:
        """The same, but these tables stay as they are, for these reasons."""
        before, after = self.before.homes, dict(self.after)
        skipped = dict(self.skipped)
        for oid, why in reasons.items():
            if before.get(oid) == after.get(oid):
                continue
            if oid in after:
                skipped[self.names[oid]] = why
                del after[oid]
            if oid in before:
                after[oid] = before[oid]
        limited = {oid: why for oid, why in self.limited.items() if oid not in reasons}
        return replace(self, after=after, skipped=skipped, limited=limited)

    def withdrawing(self, reasons: Mapping[int, str]) -> _Plan:
        """The same without these tables, whatever they are now."""
        kept = {oid: home for oid, home in self.after.items() if oid not in reasons}
        skipped = {**self.skipped, **{self.names[oid]: why for oid, why in reasons.items()}}
        return replace(self, after=kept, skipped=skipped, withdrawn=reasons)


def reconcile_publication(
    conn: psycopg.Connection[Any], config: PipelineConfig, rules: Rules
) -> Reconciled:
    """Add and remove tables, all in one transaction, which is committed when this returns. What
    somebody else has narrowed publishes all again.

    ``conn`` is in autocommit mode. Without differences it takes two queries and no lock. A table
    whose updates would fail in the application, or that cannot be published or read, is skipped;
    so is one that somebody has locked, until the next time. Raises SourceError where the
    publications are gone.
    """
    if not (plan := _plan(conn, config, rules)).has_work:
        return plan.outcome()
    patience = _PATIENCE_SECONDS if config.is_one_of_many else LOCK_SECONDS
    with PipelineLock(conn, config.name, what="set-up", patience=patience):
        # Another one may have been quicker.
        plan = _plan(conn, config, rules)
        with source_errors(f"changing the publications of pipeline {config.name}"):
            try:
                return plan.outcome(_carry_out(conn, config.name, plan))
            except _NOT_NOW as error:
                # The others need not wait for it.
                plan = plan.without(dict.fromkeys(_locked(conn, plan.names), _later(error)))
            try:
                return plan.outcome(_carry_out(conn, config.name, plan))
            except _NOT_NOW as again:
                return plan.without(dict.fromkeys(plan.names, _later(again))).outcome()


def _plan(conn: psycopg.Connection[Any], config: PipelineConfig, rules: Rules) -> _Plan:
    catalogue = {table.oid: table for table in read_tables(conn)}
    with source_errors(f"reading the publications of pipeline {config.name}"):
        before = read_membership(conn, config.name)
    patterns = config.source.tables.patterns.with_rules(rules)
    selection = select_tables(catalogue.values(), patterns)
    first, second = publication_name(config.name), inserts_publication_name(config.name)
    inserts = {table.oid for table in selection.insert_only}
    after = {table.oid: second if table.oid in inserts else first for table in selection.published}
    reasons = why_not_added(selection, copied=config.source.copy_rows is not None)
    if second not in before.names:
        lacking = f"pipeline {config.name} was made without a publication for insert_only tables"
        reasons |= {oid: lacking for oid, home in after.items() if home == second}
    plan = _Plan(
        before,
        after,
        {**before.tables, **{oid: table.table_name for oid, table in catalogue.items()}},
        {
            table.table_name: f"Postgres cannot publish it ({table.why_not_published})"
            for table in selection.skipped
            # Views under a wildcard are no surprise; a table that is left out is.
            if table.kind not in ("v", "m") or patterns.names(table.schema, table.name)
        },
        {oid: why for oid, why in before.limited().items() if oid in after},
    )
    # What is published stays so, whatever it lacks by now: only what would be changed is judged.
    plan = plan.without(reasons)
    # A partition goes on by itself as long as its root is not there to take over.
    orphans = [
        oid
        for oid in before.homes
        if oid in catalogue
        and (above := set(catalogue[oid].ancestors) & after.keys())
        and not above & plan.after.keys()
    ]
    plan = plan.without(dict.fromkeys(orphans, "its root cannot be published yet"))
    return plan.withdrawing(why_withdrawn(selection))


def _carry_out(conn: psycopg.Connection[Any], name: str, plan: _Plan) -> PublicationState:
    """What it has come to, as nobody else can have changed it since."""
    before, after = plan.before.homes, plan.after
    kept = {oid: home for oid, home in before.items() if oid not in plan.limited}
    staying = {oid: home for oid, home in after.items() if oid not in plan.limited}
    with conn.transaction():
        conn.execute(
            "SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_WAIT_SECONDS * 1000:.0f}"]
        )
        for publication in plan.before.names:
            alter_publication(
                conn,
                publication,
                add=_changed(plan, publication, after, kept),
                drop=_changed(plan, publication, before, staying),
            )
        for publication in plan.before.narrowed():
            widen_publication(conn, publication, published_by(publication, plan.before.names))
        return read_membership(conn, name).state


def _changed(
    plan: _Plan, publication: str, there: Mapping[int, str], elsewhere: Mapping[int, str]
) -> list[TableName]:
    """The tables that the publication has in the one, and not in the other."""
    return sorted(
        plan.names[oid]
        for oid, home in there.items()
        if home == publication and elsewhere.get(oid) != publication
    )


def _locked(conn: psycopg.Connection[Any], oids: Iterable[int]) -> list[int]:
    """Those of the tables that others hold locks on which do not go with ALTER PUBLICATION."""
    rows = conn.execute(
        "SELECT DISTINCT relation::bigint FROM pg_locks"
        " WHERE locktype = 'relation' AND granted AND pid <> pg_backend_pid()"
        "   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        "   AND mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock',"
        "                'ExclusiveLock', 'AccessExclusiveLock')"
        "   AND relation = ANY (%s::oid[])",
        [list(oids)],
    ).fetchall()
    return [oid for (oid,) in rows]


def _later(error: psycopg.Error) -> str:
    said = " ".join(str(error).split())
    return f"not now, it is tried again: {said}"
