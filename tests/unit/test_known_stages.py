"""Staging tables go to tasks packed, and are what they were there."""

from __future__ import annotations

import pickle

from penstock.destination.postgres.staging.known_stages import KnownStages
from penstock.destination.postgres.staging.stage import Stage, StagedColumn

STAGES = {
    oid: Stage(oid, f"public.t{oid}", ("public", f"t{oid}"), f"stage_{oid}", "keyed", columns, (0,))
    for oid in (1, 2)
    for columns in [(StagedColumn("id", "bigint", is_user_defined=False),)]
}


def sent(stages: KnownStages) -> KnownStages:
    found: KnownStages = pickle.loads(pickle.dumps(stages))  # noqa: S301 (made here)
    return found


def test_tasks_get_what_the_driver_has() -> None:
    known = KnownStages(STAGES)
    assert dict(sent(known)) == STAGES
    assert sent(known) is sent(known), "a process reads them once"
    fewer = KnownStages({1: STAGES[1]})
    assert dict(sent(fewer)) == {1: STAGES[1]}
    assert dict(sent(KnownStages(STAGES))) == STAGES
