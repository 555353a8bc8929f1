"""Answers that are kept, and renewed behind those who ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.model.errors import PenstockError
from penstock.serve.observe import looks
from penstock.serve.observe.looks import Look


class Clock:
    def __init__(self) -> None:
        self.now = self.spent = 100.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.spent


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(looks, "time", made)
    return made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def done(pool: ThreadPoolExecutor) -> None:
    """Wait for all that was begun."""
    pool.submit(threading.get_ident).result()


def test_nobody_waits_for_what_is_known(clock: Clock, pool: ThreadPoolExecutor) -> None:
    may_answer = threading.Event()
    asked: list[int] = []

    def ask() -> int:
        asked.append(len(asked))
        if asked[-1]:
            may_answer.wait()
        return asked[-1]

    look = Look(ask, 2.0, pool)
    assert look.get() == look.get() == 0
    clock.now += 2.5
    # It is asked anew, once, while everybody gets what is known.
    assert [look.get() for _ in range(3)] == [0, 0, 0]
    may_answer.set()
    done(pool)
    assert (look.get(), look.known, asked) == (1, 1, [0, 1])


def test_what_is_too_old_is_not_given(clock: Clock, pool: ThreadPoolExecutor) -> None:
    answers = iter(range(9))
    look = Look(lambda: next(answers), 2.0, pool)
    assert look.get() == 0
    clock.now += 7.0
    assert look.get() == 1


def test_what_is_known_before_a_change_is_not_given(clock: Clock, pool: ThreadPoolExecutor) -> None:
    """Also where the asking had begun before the change."""
    answers = iter(range(9))

    def ask() -> int:
        found = next(answers)
        if found == 0:
            look.forget()
        return found

    look = Look(ask, 2.0, pool)
    assert look.get() == 0
    assert look.get() == 1
    look.forget()
    assert look.known == 1
    assert look.get() == 2


def test_costly_looks_are_rare(clock: Clock, pool: ThreadPoolExecutor) -> None:
    answers = iter(range(9))

    def ask() -> int:
        clock.spent += 1.0
        return next(answers)

    look = Look(ask, 2.0, pool)
    look.get()
    clock.now += 8.0
    look.get()
    done(pool)
    assert look.known == 0
    clock.now += 2.0
    look.get()
    done(pool)
    assert look.known == 1


def test_errors_are_kept_and_forgotten_like_answers(clock: Clock, pool: ThreadPoolExecutor) -> None:
    failing = [True]

    def ask() -> str:
        if failing[0]:
            raise PenstockError("away")
        return "here"

    look = Look(ask, 2.0, pool)
    for _ in range(2):
        with pytest.raises(PenstockError, match="away"):
            look.get()
    failing[0] = False
    clock.now += 2.5
    with pytest.raises(PenstockError, match="away"):
        look.get()
    done(pool)
    assert look.get() == "here"


def test_a_server_that_stops_leaves_nobody_waiting_for_an_answer(clock: Clock) -> None:
    pool = ThreadPoolExecutor(1)
    look = Look(lambda: 1, 2.0, pool)
    assert look.get() == 1
    pool.shutdown()
    clock.now += 2.5
    assert look.get() == 1, "what is known"
    assert not look._under_way, "nothing is, and nobody claims so"
