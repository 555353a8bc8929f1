"""How tables join between two batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from penstock.model.errors import BatchAgain
from penstock.model.lsn import Frontier
from penstock.pipeline.run.joins import Joins
from penstock.transform.floors import Floors
from tests.fix_pipeline import wait_until

OLD = Floors(10, {}, frozenset({7}), frozenset({1, 7}))


def nothing() -> None:
    """Nobody wants the waiting to end."""


def test_a_table_joins_where_the_next_batch_begins() -> None:
    joins = Joins(OLD)
    assert joins.floors_at(Frontier(10, 20)) is OLD
    with ThreadPoolExecutor(2) as pool:
        point = pool.submit(joins.point, {7: Frontier(15, 16)}, nothing)
        new = wait_until(
            lambda: (floors := joins.floors_at(Frontier(30, 40))) is not OLD and floors, "it joins"
        )
        assert isinstance(new, Floors)
        assert (new.tables, new.left_out, new.known) == ({7: 30}, frozenset(), OLD.known)
        assert point.result() == Frontier(30, 40)
        # The batch before that is committed, the one that begins there waits.
        joins.wait_for(Frontier(30, 40), lambda: False)
        waiting = pool.submit(joins.wait_for, Frontier(50, 60), lambda: False)
        assert not waiting.done()
        acted: list[bool] = []
        assert joins.join([7], lambda: acted.append(waiting.done()))
        waiting.result(120)
        assert acted == [False]


def test_a_table_that_is_further_on_wants_only_what_comes_after_that() -> None:
    joins = Joins(OLD)
    with ThreadPoolExecutor(1) as pool:
        point = pool.submit(joins.point, {7: Frontier(90, 91)}, nothing)
        wait_until(lambda: joins.floors_at(Frontier(30, 40)) is not OLD, "it joins")
        assert point.result() == Frontier(30, 40)
    assert joins.floors_at(Frontier(50, 60)).tables == {7: 90}


def test_a_query_that_ends_lets_nobody_wait() -> None:
    joins = Joins(OLD)
    with ThreadPoolExecutor(1) as pool:
        point = pool.submit(joins.point, {7: Frontier(15, 16)}, nothing)
        joins.end()
        assert point.result() is None
    joins = Joins(OLD)
    with ThreadPoolExecutor(1) as pool:
        point = pool.submit(joins.point, {7: Frontier(15, 16)}, nothing)
        wait_until(lambda: joins.floors_at(Frontier(30, 40)) is not OLD, "it joins")
        assert point.result() == Frontier(30, 40)
        waiting = pool.submit(joins.wait_for, Frontier(50, 60), lambda: False)
        joins.end()
        with pytest.raises(BatchAgain):
            waiting.result(120)
    assert not joins.join([7], pytest.fail)


def test_a_commit_does_not_wait_for_what_waits_for_it() -> None:
    """A replay waits for the next query where the destination has to be asked where it stands."""
    joins = Joins(OLD)
    with ThreadPoolExecutor(1) as pool:
        point = pool.submit(joins.point, {7: Frontier(15, 16)}, nothing)
        wait_until(lambda: joins.floors_at(Frontier(30, 40)) is not OLD, "it joins")
        point.result()
    with pytest.raises(BatchAgain):
        joins.wait_for(Frontier(50, 60), lambda: True)


def test_who_finishes_copies_may_be_told_to_stop() -> None:
    class Stop(Exception):
        """As when the pipeline ends."""

    def check() -> None:
        raise Stop

    joins = Joins(OLD)
    with pytest.raises(Stop):
        joins.point({7: Frontier(15, 16)}, check)
    assert joins.floors_at(Frontier(30, 40)) is OLD


def test_one_that_is_told_to_stop_once_it_has_a_point_holds_up_no_commit() -> None:
    """Nobody brings the tables there any more. Found by chaos: the source crashed just then."""
    joins = Joins(OLD)

    def check() -> None:
        if joins.floors_at(Frontier(30, 40)) is not OLD:
            raise LookupError

    with pytest.raises(LookupError):
        joins.point({7: Frontier(15, 16)}, check)
    with pytest.raises(BatchAgain):
        joins.wait_for(Frontier(50, 60), lambda: False)


def test_a_batch_that_writes_at_once_waits_for_those_that_join() -> None:
    """What it does not say of a row is read from what the replay leaves."""
    joins = Joins(OLD, at_once=True)
    with ThreadPoolExecutor(2) as pool:
        point = pool.submit(joins.point, {7: Frontier(15, 16)}, nothing)
        wait_until(lambda: bool(joins._asking), "it asks")
        batch = pool.submit(joins.floors_at, Frontier(30, 40))
        assert point.result(120) == Frontier(30, 40)
        # The batch before it is committed meanwhile: the replay needs that.
        joins.wait_for(Frontier(30, 40), lambda: False)
        assert not wait([batch], timeout=0.3).done
        assert joins.join([7], nothing)
        assert batch.result(120).tables == {7: 30}
    assert joins.floors_at(Frontier(50, 60)).tables == {7: 30}


@pytest.mark.parametrize("is_told_to_stop", [True, False])
def test_a_batch_that_writes_at_once_comes_without_those_that_do_not_join(
    is_told_to_stop: bool,
) -> None:
    joins = Joins(OLD, at_once=True)
    with ThreadPoolExecutor(2) as pool:
        point = pool.submit(joins.point, {7: Frontier(15, 16)}, nothing)
        wait_until(lambda: bool(joins._asking), "it asks")
        batch = pool.submit(joins.floors_at, Frontier(30, 40), lambda: is_told_to_stop)
        if not is_told_to_stop:
            assert point.result(120) == Frontier(30, 40)
            joins.end()
        assert batch.result(120) is OLD
    # Nothing is committed as if it had brought them on.
    assert not joins.join([7], pytest.fail)
    with pytest.raises(BatchAgain):
        joins.wait_for(Frontier(50, 60), lambda: False)
    assert joins.floors_at(Frontier(50, 60)) is OLD
