from __future__ import annotations

import pytest

from bench.steady import steady_seconds
from bench.workloads import Mix, scaled_mix

pytestmark = pytest.mark.release


def test_the_mix_at_full_scale_is_what_the_workload_is_defined_as() -> None:
    mix = scaled_mix(1.0)
    assert mix.inserts * mix.rows_an_insert == 1_000_000
    assert mix.updates * mix.rows_an_update == 300_000
    assert mix.deletes * mix.rows_a_delete == 100_000
    assert mix.changes == 1_400_000


def test_scale_changes_the_number_of_transactions_and_not_their_size() -> None:
    assert scaled_mix(0.1) == Mix(inserts=100, updates=3000, deletes=100)


def test_every_scale_has_rows_to_update_and_delete() -> None:
    for scale in (0.00001, 0.0004, 0.0017, 0.01):
        mix = scaled_mix(scale)
        rows = mix.inserts * mix.rows_an_insert
        assert min(mix.updates, mix.deletes) >= 1
        touched = mix.updates * mix.rows_an_update + mix.deletes * mix.rows_a_delete
        assert touched <= rows


def test_steady_load_is_never_shorter_than_its_lead_in_twice() -> None:
    assert steady_seconds(1.0) == 60
    assert steady_seconds(0.5) == 30
    assert steady_seconds(0.01) == 10
