"""All breaks, by the part of Penstock that they are in."""

from __future__ import annotations

from tests.sabotage.a_break import Break
from tests.sabotage.breaks import (
    capture,
    clickhouse,
    copies,
    identity,
    lakes,
    log,
    many,
    postgres,
    queues,
    rows,
    schema,
    search,
    serve,
    source,
    transformers,
    trust,
    warehouses,
    webhooks,
)

BREAKS: tuple[Break, ...] = (
    *log.BREAKS,
    *capture.BREAKS,
    *source.BREAKS,
    *identity.BREAKS,
    *copies.BREAKS,
    *rows.BREAKS,
    *postgres.BREAKS,
    *queues.BREAKS,
    *search.BREAKS,
    *clickhouse.BREAKS,
    *lakes.BREAKS,
    *warehouses.BREAKS,
    *schema.BREAKS,
    *trust.BREAKS,
    *transformers.BREAKS,
    *many.BREAKS,
    *webhooks.BREAKS,
    *serve.BREAKS,
)
