"""All breaks, by the part of Penstock that they are in."""

from __future__ import annotations

from tests.sabotage.a_break import Break
from tests.sabotage.breaks import (
    capture,
    copies,
    identity,
    lakes,
    log,
    postgres,
    queues,
    rows,
    schema,
    source,
    trust,
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
    *lakes.BREAKS,
    *schema.BREAKS,
    *trust.BREAKS,
)
