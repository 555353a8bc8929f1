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
    Break(
        name="floor-before-removal",
        guarantee="Of two versions of a row the older loses",
        without="A TRUNCATE that a replay was killed in is taken as done: copied rows stay.",
        file="destination/search/documents.py",
        edits=(
            ("        self._remove_older(current, position)\n", ""),
            (
                "raise_floor(current, position)\n",
                "raise_floor(current, position)\n        self._remove_older(current, position)\n",
            ),
        ),
        noticed_by=(
            (
                "contract/test_search_faults.py",
                "test_a_truncate_in_a_replay_that_was_cut_off_is_done_by_the_next_driver",
            ),
        ),
    ),
    Break(
        name="late-deletes-are-forgotten",
        guarantee="Of two versions of a row the older loses",
        without="Of a large transaction that comes again, a row that it deletes refuses its table.",
        file="destination/search/documents.py",
        edits=(('        version -= _share_versions(documents["ordinal"].to_numpy())\n', ""),),
        noticed_by=(
            (
                "contract/test_search_faults.py",
                "test_a_large_transaction_that_changes_a_row_again_and_again",
            ),
        ),
    ),
)
