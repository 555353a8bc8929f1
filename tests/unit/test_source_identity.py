"""Whether a position is a point in the history of the source of now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model.errors import IdentityChanged
from penstock.model.lsn import Frontier
from penstock.model.source_identity import SeenSource, SourceIdentity, parse_history
from penstock.model.watermarks import Watermarks

THEN = SourceIdentity("7001", 1, "shop", "uuid")
SEEN = SeenSource(THEN, 0x500)


def promoted(at: int, timeline: int = 2) -> SeenSource:
    return SeenSource(replace(THEN, timeline=timeline), 0x500, {1: at})


def test_the_same_source_goes_on() -> None:
    SEEN.expect(THEN, 0x500, "The destination")
    # An older version did not say what it was.
    SEEN.expect(None, 0x500, "The destination")


@pytest.mark.parametrize("held", [THEN, None])
def test_a_source_that_went_back_is_refused(held: SourceIdentity | None) -> None:
    with pytest.raises(IdentityChanged, match=r"went back .* stands at 0/501, .* than 0/500"):
        SEEN.expect(held, 0x501, "The destination")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(THEN, system_id="7002"), "system identifier 7001; this one has 7002"),
        (replace(THEN, database="store"), "the database shop; this one has store"),
        (replace(THEN, publication="new"), "publication with the uuid uuid; this one has new"),
        (replace(THEN, publication=""), "publication with the uuid uuid; this one has none"),
    ],
)
def test_another_source_is_refused(other: SourceIdentity, named: str) -> None:
    with pytest.raises(IdentityChanged, match=f"0/100 of another source, one with .*{named}"):
        SeenSource(other, 0x500).expect(THEN, 0x100, "The destination")


def test_after_a_promotion_the_history_decides() -> None:
    promoted(0x100).expect(THEN, 0x100, "The destination")
    promoted(0x200, timeline=5).expect(THEN, 0x100, "The destination")
    with pytest.raises(IdentityChanged, match="stands at 0/108, and the source left timeline 1 at"):
        promoted(0x100).expect(THEN, 0x108, "The destination")
    # A server that was never promoted, though the position is of one that was.
    with pytest.raises(IdentityChanged, match=r"timeline 3 is not in the history of .* timeline 1"):
        SEEN.expect(replace(THEN, timeline=3), 0x100, "The destination")


def test_a_history_file_is_read() -> None:
    content = "1\t0/3000148\tno recovery target specified\n\n# odd\n2\t16/B374D848\tbefore 2026\n"
    assert parse_history(content) == {1: 0x3000148, 2: 0x16B374D848}
    assert parse_history("") == {}


def test_positions_of_older_versions_are_read() -> None:
    at = Watermarks(Frontier(1, 2), {7: Frontier(3, 4)}, THEN)
    assert Watermarks.from_json(at.to_json()) == at
    assert Watermarks.from_json({"frontier": Frontier(1, 2).to_json()}) == Watermarks(
        Frontier(1, 2)
    )


def test_a_step_keeps_the_source() -> None:
    at = Watermarks(Frontier(1, 2), {7: Frontier(1, 1)}, THEN)
    steps = [
        at.after(Frontier(3, 4), ()),
        at.placed({8: Frontier(1, 1)}),
        at.freed([7]),
        at.together(()),
    ]
    assert {step.source for step in steps} == {THEN}


def test_a_copy_that_had_joined_is_not_lost_with_later_commits() -> None:
    """From its snapshot on a table stands apart, until it is together with the others."""
    at = Watermarks(Frontier(90, 100), {7: Frontier(49, 50)})
    assert at.has_joined(8, 50)
    assert not at.has_joined(7, 50)
    # The snapshot came after that.
    assert not at.has_joined(8, 100)
    assert not at.has_joined(8, 120)
