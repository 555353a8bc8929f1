"""The rules of ``transform`` and conditions of ``filter`` against the source's catalogue."""

from __future__ import annotations

from penstock.config.models import PipelineConfig
from penstock.model.table_definition import TableDefinition
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.catalogue.tables import read_tables
from penstock.source.postgres.connect import connect
from penstock.source.postgres.subscription.subscription import find_subscription
from penstock.source.postgres.subscription.table_selection import select_tables
from penstock.transform.filter import Filter
from penstock.transform.transform import Transform
from penstock.transform.transform_check import RuleFinding, check_rules


def followed_tables(config: PipelineConfig, *, holds_rows: bool = False) -> list[TableDefinition]:
    """The tables that the pipeline file asks for, as its filter leaves them. ``holds_rows``: for a
    destination that does. Raises SourceError, and ConfigError where the filter does not suit.
    """
    with connect(config.source.url, application_name=f"penstock {config.name} rules") as conn:
        found = find_subscription(conn, config.name)
        selection = select_tables(read_tables(conn), config.source.tables.patterns)
        names = [table.table_name for table in selection.published]
        tables = read_definitions(conn, names, found.publications if found else ())
    return Filter(config.filter, holds_rows=holds_rows).definitions(tables)


def check_transform(config: PipelineConfig, *, merges: bool) -> list[RuleFinding]:
    """What is found of every table; nothing without rules. Raises ConfigError and SourceError."""
    if config.transform is None:
        return []
    return check_rules(Transform(config.transform), followed_tables(config), merges=merges)
