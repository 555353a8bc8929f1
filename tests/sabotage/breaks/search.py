"""Breaks of documents: the `search` destination."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="version-without-lsn",
        guarantee="Of two versions of a row the older loses",
        without="A batch that comes again writes over what came after it.",
        file="destination/search/document_lines.py",
        edits=(("(commit_lsn >> 3 << _ORDINAL_BITS) | np.minimum", "np.minimum"),),
        noticed_by=(
            (
                "contract/test_search.py",
                "TestSearch::test_of_two_writes_of_a_row_the_older_one_loses",
            ),
        ),
    ),
    Break(
        name="any-generation-is-followed",
        guarantee="Of two versions of a row the older loses",
        without="A writer from before a copy goes on in the index that the copy fills.",
        file="destination/search/generations.py",
        edits=(("if closed.index in (each.index, *each.follows)", "if each.floor"),),
        noticed_by=(
            (
                "contract/test_search_faults.py",
                "test_a_writer_from_before_a_copy_gets_nothing_in",
            ),
        ),
    ),
)
