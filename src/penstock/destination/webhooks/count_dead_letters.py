"""How many events receivers have refused, for `penstock status`."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.options import WebhooksOptions


def count_dead_letters(options: WebhooksOptions, pipeline: str) -> Mapping[str, int]:
    """By source table. Raises DestinationError where the database does not answer."""
    database = Database(options.url, pipeline, "status")
    try:
        return dead_letters_in(database)
    finally:
        database.close()


def dead_letters_in(database: Database) -> Mapping[str, int]:
    if not database.has_tables():
        return {}
    with database.transaction("counting dead letters") as conn:
        rows = conn.execute(
            "SELECT source_table, count(*) FROM penstock.webhook_dead_letter"
            " WHERE pipeline = %s GROUP BY 1",
            [database.pipeline],
        ).fetchall()
    return dict(rows)
