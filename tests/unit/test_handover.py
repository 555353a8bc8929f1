"""Where tasks leave rows for the driver, and when they do."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from penstock.destination.postgres.staging.handover import Handed, Handover, HandoverPlace
from penstock.destination.postgres.staging.handover_choice import HandoverChoice
from penstock.destination.postgres.staging.receipt import Part, StagedBatch, StagedRun, stretches
from penstock.model.errors import BatchAgain

HANDED = Handed("f", 0, 1, 10)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def place_of(handover: Handover, lane: int = 0) -> HandoverPlace:
    place = handover.place(lane)
    assert place is not None
    return place


def left(place: HandoverPlace, lines: bytes) -> Handed:
    file = place.begin()
    handed = file.add(np.array([5]), np.array([7]), iter([memoryview(lines)]))
    file.close()
    return handed


def batch(*parts: Part) -> StagedBatch:
    return StagedBatch(0, (StagedRun((), parts),))


def test_what_is_left_is_found(folder: Path) -> None:
    lines = b"".join(b"%d\tx\n" % number for number in range(300_000))
    handed = left(place_of(Handover()), lines)
    assert handed.read() == lines
    assert [positions.tolist() for positions in handed.positions()] == [[5], [7]]
    assert {path.stat().st_mode & 0o077 for path in folder.glob("penstock-rows-*")} == {0}


def test_a_folder_without_the_mark_is_another_one(folder: Path) -> None:
    place = place_of(Handover())
    assert place.is_here()
    assert not HandoverPlace(place.folder, "of another driver").is_here()
    assert not HandoverPlace(str(folder / "nowhere"), place.mark).is_here()


def test_a_lane_is_empty_when_its_turn_comes_again(folder: Path) -> None:
    handover = Handover()
    first, second = left(place_of(handover), b"a\n"), left(place_of(handover, 1), b"b\n")
    place_of(handover)
    assert second.read() == b"b\n"
    with pytest.raises(BatchAgain, match="gone"):
        first.read()


def test_a_batch_that_is_over_leaves_nothing(folder: Path) -> None:
    handover = Handover()
    handover.empty(0)
    place, other = place_of(handover), left(place_of(handover, 1), b"b\n")
    left(place, b"a\n")
    handover.empty(0)
    found = {path.name for path in folder.rglob("*") if path.is_file()}
    assert found == {"lock", "mark", Path(other.file).name}
    # A task that outlived its batch stages.
    assert not place.is_here()


def test_a_folder_goes_with_its_driver_and_those_of_dead_ones_before(folder: Path) -> None:
    living, dead = Handover(), folder / "penstock-rows-dead"
    place = place_of(living)
    dead.mkdir()
    (dead / "lock").touch()
    other = Handover()
    place_of(other)
    assert not dead.exists()
    assert place.is_here()
    other.close()
    living.close()
    assert list(folder.iterdir()) == []


def test_a_folder_that_was_removed_is_made_again(folder: Path) -> None:
    handover = Handover()
    first = Path(place_of(handover).folder).parent
    for path in sorted(first.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    first.rmdir()
    assert place_of(handover).is_here()


def test_without_a_folder_nothing_is_handed_over(folder: Path) -> None:
    folder.rmdir()
    assert Handover().place(0) is None


class TestChoice:
    def test_few_tasks_or_small_batches_are_handed_over(self) -> None:
        choice, large = HandoverChoice(), batch(Part(1, 1, bytes=2**30))
        assert choice.next()
        choice.committed(2, large)
        assert choice.next()
        choice.committed(3, large)
        assert not choice.next()
        choice.committed(3, batch(Part(1, 1, bytes=100, handed=HANDED)))
        assert choice.next()

    def test_pieces_are_of_use_where_rows_are_handed_over(self) -> None:
        """One that is staged is merged at once: pieces would be jobs more, for nothing."""
        choice, likely = HandoverChoice(), []
        likely.append(choice.is_likely)
        choice.committed(1, batch(Part(1, 1, updates=1, bytes=100)))
        likely.append(choice.is_likely)
        assert choice.next()
        # One without rows tells nothing.
        choice.committed(0, StagedBatch(0, ()))
        likely.append(choice.is_likely)
        choice.committed(1, batch(Part(1, 1, bytes=100, handed=HANDED)))
        likely.append(choice.is_likely)
        choice.refused()
        likely.append(choice.is_likely)
        assert likely == [True, False, False, True, False]

    def test_one_that_was_in_vain_is_followed_by_a_rest_that_grows(self) -> None:
        choice, rests = HandoverChoice(), []
        for _ in range(9):
            choice.refused()
            rests.append(next(n for n in range(2000) if choice.next()))
        assert rests == [8, 16, 32, 64, 128, 256, 512, 1024, 1024]
        for _ in range(20):
            choice.committed(1, batch(Part(1, 1, handed=HANDED)))
        choice.refused()
        assert next(n for n in range(2000) if choice.next()) == 8


def test_a_receipt_tells_what_was_handed_over() -> None:
    told = batch(Part(1, 2, handed=HANDED), Part(3, 2, inserts=4, bytes=20))
    assert StagedBatch.from_bytes([told.to_bytes()]) == told
    assert (told.is_handed, told.size) == (True, 30)


def test_parts_in_turns() -> None:
    staged, handed = Part(1, 1, inserts=1), Part(1, 2, handed=HANDED)
    assert stretches([]) == []
    assert stretches([staged, staged]) == [([staged, staged], [])]
    assert stretches([handed, staged, handed, handed, staged]) == [
        ([], [handed]),
        ([staged], [handed, handed]),
        ([staged], []),
    ]
