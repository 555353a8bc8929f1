"""What a preflight check found, and what the checks look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import psycopg

from penstock.config.models import PipelineConfig
from penstock.model.errors import SourceError
from penstock.source.contract import Subscription
from penstock.source.postgres.catalogue.tables import read_tables
from penstock.source.postgres.subscription.slot import SlotState, slot_state
from penstock.source.postgres.subscription.subscription import find_subscription
from penstock.source.postgres.subscription.table_selection import TableSelection, select_tables

Status = Literal["passed", "failed", "warning", "skipped"]


class Finding(NamedTuple):
    """The outcome of one check. ``remedy`` says what to do where it did not pass."""

    status: Status
    detail: str
    remedy: str = ""


@dataclass
class Source:
    """The connected source, with what several checks ask for read once."""

    conn: psycopg.Connection[Any]
    config: PipelineConfig

    def value(self, query: str, *parameters: object) -> Any:
        """The one value that the query returns."""
        row = self.conn.execute(query.encode(), parameters or None).fetchone()
        return None if row is None else row[0]

    def setting(self, name: str) -> str | None:
        """A server setting as SHOW prints it; None where this version has no such setting."""
        value: str | None = self.value("SELECT current_setting(%s, true)", name)
        return value

    @cached_property
    def subscription(self) -> Subscription | None:
        """None also where a foreign publication has the name: the publication check says so."""
        try:
            return find_subscription(self.conn, self.config.name)
        except SourceError:
            return None

    @cached_property
    def slot(self) -> SlotState | None:
        return None if self.subscription is None else slot_state(self.conn, self.subscription.slot)

    @cached_property
    def selection(self) -> TableSelection:
        return select_tables(read_tables(self.conn), self.config.source.tables.patterns)

    @cached_property
    def may_replicate(self) -> bool:
        """By attribute, or by one of the roles that managed services grant instead."""
        return bool(
            self.value(
                "SELECT rolsuper OR rolreplication OR EXISTS ("
                "  SELECT FROM pg_roles r WHERE r.rolname IN ('rds_replication', 'rds_superuser')"
                "   AND pg_has_role(session_user, r.oid, 'USAGE'))"
                " FROM pg_roles WHERE rolname = session_user"
            )
        )


def listed(names: Iterable[object], limit: int = 10) -> str:
    """The first names, and how many more there are."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more
