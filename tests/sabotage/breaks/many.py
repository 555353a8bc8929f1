"""Breaks of pipelines with several destinations: who waits for whom, and where one begins."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="never-ran-not-waited-for",
        guarantee="One destination holds back no other",
        without="What a destination needs that has never run is confirmed and removed.",
        file="source/capture/keeper.py",
        edits=(("dict.fromkeys(absent, self._awaited.since)", "dict[str, Frontier]()"),),
        noticed_by=(("unit/test_many_readers.py", "test_who_has_never_run_holds_slot_and_log"),),
    ),
    Break(
        name="barrier-holds-everybody",
        guarantee="One destination holds back no other",
        without="While one destination is compared, all others wait.",
        file="changelog/barrier.py",
        edits=((" and match[2] in (None, self._reader)", ""),),
        noticed_by=(("unit/test_many_readers.py", "test_a_barrier_holds_one_reader_alone"),),
    ),
    Break(
        name="replay-of-what-is-removed",
        guarantee="One that comes later lacks nothing",
        without="A destination is to begin with a log whose first segments go before capture sees"
        " it: it never starts, and the log is kept for it.",
        file="pipeline/run/beginning.py",
        edits=(
            (
                "_let_capture_notice(log, 0.0 if config.replays_log else config.change_log.grace)",
                "_let_capture_notice(log, config.change_log.grace)",
            ),
        ),
        noticed_by=(
            (
                "unit/test_beginning.py",
                "test_what_everybody_passed_long_ago_may_go_at_any_moment",
            ),
        ),
    ),
    Break(
        name="newcomer-takes-a-lost-log-for-a-beginning",
        guarantee="One that comes later lacks nothing",
        without="A destination whose place in the log is lost begins anew at its end.",
        file="pipeline/run/beginning.py",
        edits=((" or context.store.get_table_states()", ""),),
        noticed_by=(
            ("unit/test_beginning.py", "test_one_whose_place_was_lost_does_not_begin_anew"),
        ),
    ),
    Break(
        name="newcomer-begins-before-it-is-noticed",
        guarantee="One that comes later lacks nothing",
        without="What is removed before capture has noticed the new reader is missing.",
        file="pipeline/run/beginning.py",
        edits=(("if not chain.lacks(log.list().segments, begin):", "if True:"),),
        noticed_by=(
            ("unit/test_beginning.py", "test_what_is_removed_meanwhile_is_not_its_beginning"),
        ),
    ),
)
