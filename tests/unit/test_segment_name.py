"""A segment's name says all that a listing has to know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import Frontier

lsns = st.integers(0, 2**64 - 1)
names = st.builds(
    SegmentName,
    # More digits than a name has at least.
    st.integers(0, 10**12 - 1) | st.integers(10**12, 10**20),
    st.integers(0, 10**6 - 1) | st.integers(10**6, 10**12),
    lsns,
    lsns,
    lsns,
    st.integers(0, 10**9),
    st.booleans(),
    lsns,
    st.booleans(),
    st.integers(0, 10**12),
)
NAME = SegmentName(7, 2, 0x10, 0x20, 0x30, 5, True, 0xABC)
TEXT = (
    "000000000007.000002.0000000000000010.0000000000000020.0000000000000030.5.o."
    "0000000000000abc.arrow"
)


@given(names)
def test_text_and_back(name: SegmentName) -> None:
    assert SegmentName.parse(str(name)) == name


@given(names, names)
def test_names_sort_by_sequence(a: SegmentName, b: SegmentName) -> None:
    if a.sequence != b.sequence:
        assert (a < b) == (a.sequence < b.sequence)
        if max(a.sequence, b.sequence) < 10**12:
            assert (str(a) < str(b)) == (a < b), "in a listing, too"


def test_the_written_form() -> None:
    """Fixed by docs/segment_format.md: a change of it is a new format version."""
    assert str(NAME) == TEXT
    assert NAME.frontier == Frontier(0x20, 0x30)
    assert str(NAME._replace(unpacked=1234)) == TEXT.replace(".arrow", ".z1234.arrow")


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT + ".tmp",
        "." + TEXT,
        TEXT.upper(),
        TEXT.replace(".o.", ".x."),
        TEXT.replace(".5.", ".."),
        TEXT.replace(".arrow", ".z0.arrow"),
        TEXT.replace(".arrow", ".z.arrow"),
        TEXT.replace("000002", "0002"),
        # Of two names of one number, one only.
        TEXT.replace("000002", "0000002"),
        "0" + TEXT,
        TEXT + "\n",
        "\N{ARABIC-INDIC DIGIT ZERO}" + TEXT[1:],
    ],
)
def test_other_files_are_no_segments(text: str) -> None:
    assert SegmentName.parse(text) is None


def test_unfinished_means_nothing_ends_here() -> None:
    assert NAME._replace(last=NAME.after).is_unfinished
    assert not NAME.is_unfinished
    assert not NAME._replace(last=NAME.after, is_open=False).is_unfinished
