"""Breaks of how rows are decoded and folded."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="unset-mask-dropped",
        guarantee="Unset is not null",
        without="An unchanged TOASTed column arrives as null.",
        file="decode/row_values.py",
        edits=(("return source, left if left.any() else None", "return source, None"),),
        noticed_by=(("contract/test_files.py", "TestFiles::test_unset_is_not_null[ndjson]"),),
    ),
    Break(
        name="unset-not-folded",
        guarantee="Unset is not null",
        without="An unset column does not take the value that an earlier change of the batch sent.",
        file="transform/net_rows.py",
        edits=(("pick = np.where(missing, self.last, self.order[latest])", "pick = self.last"),),
        noticed_by=(("unit/test_net_rows.py", "test_the_last_value_that_was_sent_counts"),),
    ),
    Break(
        name="rows-without-a-key-not-counted",
        guarantee="Once, in tables",
        without="In a table without a key an update adds the new row and leaves the old one.",
        file="transform/net_rows.py",
        edits=(("-np.ones(len(changes.old_rows), np.int64)", "0 * changes.old_rows"),),
        noticed_by=(
            ("unit/test_net_rows.py", "test_counting_each_run_is_applying_change_by_change"),
        ),
    ),
    Break(
        name="lane-by-arrival",
        guarantee="In order per lane, in queues",
        without="Events of a lane are sent table by table, as they were decoded, not by position.",
        file="destination/families/queue/events.py",
        edits=(
            ("order = np.lexsort((part, ordinal, commit_lsn))", "order = np.arange(len(part))"),
        ),
        noticed_by=(
            ("unit/test_queue_events.py", "test_lanes_have_every_event_once_and_in_order"),
        ),
    ),
)
