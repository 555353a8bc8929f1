"""What was asked with a key is done once, whoever answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from penstock.model.errors import ConfigError, PenstockError
from penstock.serve.api import replays as module
from penstock.serve.api.models import Alive, Discarded
from penstock.serve.api.replays import Replays

KEY = ("olga", "/v1/x", "one")


def refuse() -> Alive:
    raise AssertionError("it was done again")


def test_the_next_server_gives_the_first_answer(tmp_path: Path) -> None:
    first = Replays(tmp_path).once(KEY, "{}", lambda: Discarded(discarded=[1, 2]))
    again: BaseModel = Replays(tmp_path).once(KEY, "{}", refuse)
    assert again == first
    with pytest.raises(ConfigError, match="another request"):
        Replays(tmp_path).once(KEY, "{1}", refuse)
    # It is somebody else's key, or for another place.
    assert Replays(tmp_path).once(("rita", *KEY[1:]), "{}", Alive) == Alive()


def test_a_server_that_died_meanwhile_leaves_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die() -> Alive:
        raise Died

    gone = Replays(tmp_path)
    monkeypatch.setattr(gone, "_forget", lambda _place: None)
    with pytest.raises(Died):
        gone.once(KEY, "{}", die)
    with pytest.raises(PenstockError, match="is still under way"):
        gone.once(KEY, "{}", refuse)
    with pytest.raises(PenstockError, match="whether it was done is not known"):
        Replays(tmp_path).once(KEY, "{}", refuse)


def test_what_failed_may_be_tried_again(tmp_path: Path) -> None:
    def fail() -> Alive:
        raise PenstockError("not now")

    kept = Replays(tmp_path)
    with pytest.raises(PenstockError, match="not now"):
        kept.once(KEY, "{}", fail)
    assert kept.once(KEY, "{}", Alive) == Alive()


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_REPLAYS", 3)
    kept = Replays(tmp_path)
    for number in range(5):
        kept.once(("olga", str(number)), "", Alive)
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / "odd.json").write_text("[]")
    again = Replays(tmp_path)
    assert again.once(("olga", "4"), "", refuse) == Alive()
